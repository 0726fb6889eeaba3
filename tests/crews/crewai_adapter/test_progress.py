"""The messages that come of a crew's events, and the room that they have."""

from __future__ import annotations

import pytest

from smartlinkd.crews.protocol import (
    Log,
    Result,
    Started,
    Step,
    TaskCompleted,
    TaskStarted,
    TokenUsage,
)
from tests.crews.crewai_adapter.stand_in import steps
from tests.crews.scripts import Begin, to_end, whole


async def test_run_reports_its_task_step_and_result(crew: Begin) -> None:
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
    messages, end = await whole(crew(code, inputs={"topic": "tea"}))
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


async def test_task_ids_are_unique(crew: Begin) -> None:
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
    messages, end = await whole(crew(code))
    assert isinstance(end, Result)
    names = [message.task_id for message in messages if isinstance(message, TaskStarted)]
    assert names == ["post", "task-2", "post-2", "task-4", "task-5", "post-3"]


async def test_open_tasks_are_completed_before_the_result(crew: Begin) -> None:
    code = """
        from crewai import Crew, output, task, tell

        def kickoff(crew, inputs):
            tell(crew.tasks[0], "task_started")
            crew.tasks[0].output = output("what there is")
            tell(task("of nobody"), "task_started")
            return "done"

        press = Crew(task("post"), kickoff=kickoff)
        """
    messages, end = await whole(crew(code))
    assert messages[2:] == [TaskCompleted(task_id="post", output="what there is")]
    assert end == Result(output="done")


async def test_unexpected_event_is_ignored(crew: Begin) -> None:
    code = """
        from crewai import Crew, tell

        def kickoff(crew, inputs):
            return tell(None, "task_completed")

        press = Crew(kickoff=kickoff)
        """
    async with crew(code) as worker:
        _, end = await to_end(worker)
        assert "crewai_adapter: task_completed: AttributeError" in worker.stderr_tail
    assert end == Result(output="task_completed")


async def test_messages_of_threads_are_whole_lines(crew: Begin) -> None:
    code = """
        import threading
        from crewai import Crew, output, task, tell, used

        def work(task):
            tell(task, "task_started")
            for n in range(100):
                used(task, "t", "x" * 5000, n=n)
            tell(task, "task_completed", output=output(task.name))

        def kickoff(crew, inputs):
            threads = [threading.Thread(target=work, args=[task]) for task in crew.tasks]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
            return "done"

        press = Crew(*(task(f"t{n}") for n in range(8)), kickoff=kickoff)
        """
    messages, end = await whole(crew(code))
    assert end == Result(output="done")
    assert len(steps(messages)) == 800
    for task in range(8):
        own = [each.tool_input for each in steps(messages) if each.task_id == f"t{task}"]
        assert own == [{"n": n} for n in range(100)]


async def test_steps_beyond_the_bound_are_left_out(crew: Begin) -> None:
    code = """
        from crewai import Crew, output, task, tell, used

        def kickoff(crew, inputs):
            [post] = crew.tasks
            tell(post, "task_started")
            for n in range(12_000):
                used(post, "t", n=n)
            tell(post, "task_completed", output=output("x"))
            return "done"

        press = Crew(task("post"), kickoff=kickoff)
        """
    messages, end = await whole(crew(code))
    assert end == Result(output="done")
    assert 7_000 < len(steps(messages)) < 9_000
    warning = "this execution has said so much that further steps are left out"
    assert [message for message in messages if isinstance(message, Log)] == [
        Log(level="warning", text=warning)
    ]
    assert isinstance(messages[-1], TaskCompleted)


async def test_long_texts_are_cut_visibly(crew: Begin) -> None:
    code = """
        from crewai import Crew, output, task, tell, used

        LONG = "ắ\\x00\\ud800" * 400_000

        def kickoff(crew, inputs):
            [post] = crew.tasks
            tell(post, "task_started")
            for n in range(40):
                used(post, LONG, LONG, given=LONG)
            tell(post, "task_completed", output=output(LONG, {"long": LONG}))
            return output(LONG, {"long": LONG})

        press = Crew(task("post", role=LONG, description=LONG, expected_output=LONG),
                     kickoff=kickoff)
        """
    messages, end = await whole(crew(code))
    mark = "… (cut: 1200000 characters in all)"
    assert isinstance(end, Result), end.error
    assert end.output.endswith(mark)
    assert len(end.output) > 200_000
    assert end.output_json is None
    opened, done = messages[1], messages[-2]
    assert isinstance(opened, TaskStarted)
    assert isinstance(done, TaskCompleted)
    for text in (opened.agent, opened.description, done.output, steps(messages)[0].result):
        assert text is not None
        assert text.endswith(mark)
    assert messages[-1] == Log(
        level="warning", text="output_json is left out: with it the result would be too long"
    )


@pytest.mark.parametrize("given", ['"x" * 900_000', '"x", {"a": "y" * 200_000}'])
async def test_many_long_outputs_leave_room_for_the_result(crew: Begin, given: str) -> None:
    code = f"""
        from crewai import Crew, output, task, tell

        def kickoff(crew, inputs):
            for task in crew.tasks:
                tell(task, "task_started")
                tell(task, "task_completed", output=output({given}))
            return "x" * 900_000

        press = Crew(*(task(f"t{{n}}") for n in range(300)), kickoff=kickoff)
        """
    messages, end = await whole(crew(code))
    assert end == Result(output="x" * 900_000)
    assert len(messages) == 601


async def test_nothing_is_sent_after_the_result(crew: Begin) -> None:
    code = """
        import threading
        from crewai import Crew, task, tell, used

        def later(task):
            threading.main_thread().join()
            used(task, "t")

        def kickoff(crew, inputs):
            threading.Thread(target=later, args=crew.tasks).start()
            return "done"

        press = Crew(task("post"), kickoff=kickoff)
        """
    messages, end = await whole(crew(code))
    assert (messages, end) == ([Started(total_tasks=1)], Result(output="done"))
