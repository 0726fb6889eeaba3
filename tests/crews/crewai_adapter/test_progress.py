"""What the daemon is told of a crew's events."""

from __future__ import annotations

import pytest

from smartlinkd.crews.protocol import (
    Failed,
    HumanFeedback,
    HumanInput,
    Result,
    Started,
    Step,
    TaskCompleted,
    TaskStarted,
    TokenUsage,
)
from tests.crews.crewai_adapter.stand_in import Begin, steps, whole


async def test_a_run_from_its_start_to_its_result(crew: Begin) -> None:
    code = """
        from crewai import Crew, answered, output, task, tell

        def kickoff(crew, inputs):
            [post] = crew.tasks
            tell(post, "task_started")
            tell(post, "agent_execution_started", agent=post.agent, task=post, task_prompt="all")
            answered(post, "text")
            tell(post, "agent_execution_completed", agent=post.agent, task=post, output="text")
            tell(post, "task_completed", output=output("text", {"a": 1}))
            return output(f"of {inputs['topic']}", {"b": 2}, (3, 4))

        press = Crew(task("post"), kickoff=kickoff)
        """
    async with crew(code, inputs={"topic": "tea"}) as worker:
        messages, end = await whole(worker)
    assert messages == [
        Started(total_tasks=1),
        TaskStarted(
            task_id="post", name="post", agent="writer", description="d", expected_output="e"
        ),
        Step(task_id="post", agent="writer", prompt="all", result="text"),
        TaskCompleted(task_id="post", output="text", output_json={"a": 1}),
    ]
    usage = TokenUsage(total_tokens=7, prompt_tokens=3, completion_tokens=4)
    assert end == Result(output="of tea", output_json={"b": 2}, token_usage=usage)


async def test_thoughts_belong_to_what_came_of_them(crew: Begin) -> None:
    code = """
        from crewai import Crew, answered, task, tell, used

        def kickoff(crew, inputs):
            [post] = crew.tasks
            tell(post, "task_started")
            answered(post, "Thought: I need links\\nAction: find\\nAction Input: {}", "look")
            used(post, "find", "found", what="tea")
            answered(post, "first try", "write")
            answered(post, "second try", "write better")
            tell(post, "agent_execution_completed", agent=post.agent, task=post, output="second")
            return "done"

        press = Crew(task("post"), kickoff=kickoff)
        """
    async with crew(code) as worker:
        messages, _ = await whole(worker)
    used, first, second = steps(messages)
    assert (used.prompt, used.thought, used.tool, used.result) == (
        "look",
        "I need links",
        "find",
        "found",
    )
    assert used.tool_input == {"what": "tea"}
    assert (first.prompt, first.result) == ("write", "first try")
    assert second.result == "second"


async def test_an_answer_in_json_is_told_as_it_was_said(crew: Begin) -> None:
    """CrewAI tells of what it has read from it as Python prints that."""
    code = """
        from crewai import Crew, answered, task, tell, used
        from crewai.core.providers import human_input

        def end(post):
            tell(post, "agent_execution_completed", agent=post.agent, task=post, output="title='T'")

        def kickoff(crew, inputs):
            [post] = crew.tasks
            tell(post, "task_started")
            answered(post, '{"title": "T"}')
            end(post)
            answered(post, '{"title": "first"}')
            answered(post, '{"title": "shown"}')
            human_input.human._progress.ask(post, '{"title": "shown"}')
            end(post)
            answered(post, '{"title": "draft"}')
            answered(post, "no tool")
            used(post, "find", "[1]")
            end(post)
            return "done"

        press = Crew(task("post"), kickoff=kickoff)
        """
    messages = []
    async with crew(code) as worker:
        async for message in worker.messages:
            messages.append(message)
            if isinstance(message, HumanInput):
                answer = HumanFeedback(task_id=message.task_id, feedback="", approved=True)
                await worker.send(answer)
        assert isinstance(await worker.exit_reason(), Result)
    assert [step.result for step in steps(messages)] == [
        '{"title": "T"}',
        '{"title": "first"}',
        '{"title": "shown"}',
        '{"title": "draft"}',
        "[1]",
        "title='T'",
    ]


@pytest.mark.parametrize(
    ("answers", "output"),
    [
        (['{"plan": 1}', "A post."], "A post."),
        (['{"key": "secret"}'], '{"key": "[REDACTED]"}'),
    ],
    ids=["a plan in JSON", "a hook has changed it"],
)
async def test_what_came_of_an_answer_is_told(crew: Begin, answers: list[str], output: str) -> None:
    code = f"""
        from crewai import Crew, answered, task, tell

        def kickoff(crew, inputs):
            [post] = crew.tasks
            tell(post, "task_started")
            for answer in {answers}:
                answered(post, answer)
            tell(post, "agent_execution_completed", agent=post.agent, task=post, output={output!r})
            return "done"

        press = Crew(task("post"), kickoff=kickoff)
        """
    async with crew(code) as worker:
        messages, _ = await whole(worker)
    assert [step.result for step in steps(messages)] == [*answers[:-1], output]


@pytest.mark.parametrize("ends", ["return 'done'", "raise KeyError('done')"])
async def test_what_a_model_said_last_is_told(crew: Begin, ends: str) -> None:
    code = f"""
        from crewai import Crew, answered, task, tell

        def kickoff(crew, inputs):
            [post] = crew.tasks
            tell(post, "task_started")
            answered(post, "of a try")
            tell(post, "agent_execution_error", agent=post.agent, task=post, error="no luck")
            answered(post, "of an agent without events of its end")
            {ends}

        press = Crew(task("post"), kickoff=kickoff)
        """
    async with crew(code) as worker:
        messages, end = await whole(worker)
    assert isinstance(end, Result | Failed)
    told = [each.result if isinstance(each, Step) else each.type for each in messages[2:]]
    said = ["of a try", "log", "of an agent without events of its end"]
    assert told == said + (["task_completed"] if isinstance(end, Result) else [])


async def test_tasks_have_names_that_are_used_once(crew: Begin) -> None:
    code = """
        from crewai import Crew, output, task, tell

        def kickoff(crew, inputs):
            for task in [*crew.tasks, crew.tasks[0]]:
                tell(task, "task_started")
                tell(task, "task_completed", output=output("x"))
            return "done"

        names = ("post", None, "post", "a\\x00b", "x" * 500)
        press = Crew(*map(task, names), kickoff=kickoff)
        """
    async with crew(code) as worker:
        messages, end = await whole(worker)
    assert isinstance(end, Result)
    names = [message.task_id for message in messages if isinstance(message, TaskStarted)]
    assert names == ["post", "task-2", "post-2", "task-4", "task-5", "post-3"]


async def test_tasks_that_nobody_ended_are_ended_before_the_result(crew: Begin) -> None:
    code = """
        from crewai import Crew, output, task, tell

        def kickoff(crew, inputs):
            tell(crew.tasks[0], "task_started")
            crew.tasks[0].output = output("what there is")
            tell(task("of nobody"), "task_started")
            return "done"

        press = Crew(task("post"), kickoff=kickoff)
        """
    async with crew(code) as worker:
        messages, end = await whole(worker)
    assert messages[2:] == [TaskCompleted(task_id="post", output="what there is")]
    assert end == Result(output="done")


async def test_an_event_that_is_not_understood_harms_nothing(crew: Begin) -> None:
    code = """
        from crewai import Crew, tell

        def kickoff(crew, inputs):
            return tell(None, "task_completed")

        press = Crew(kickoff=kickoff)
        """
    async with crew(code) as worker:
        _, end = await whole(worker)
        assert "crewai_adapter: task_completed: AttributeError" in worker.stderr_tail
    assert end == Result(output="task_completed")
