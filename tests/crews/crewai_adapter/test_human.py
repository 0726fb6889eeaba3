"""Questions of a crew to a human."""

from __future__ import annotations

import pytest

from smartlinkd.crews.protocol import (
    Failed,
    FromWorker,
    HumanInput,
    Log,
    Result,
)
from tests.crews.crewai_adapter.stand_in import steps
from tests.crews.scripts import Begin, questions, whole

ASKING = """
    from crewai import Crew, Thing, task, tell
    from crewai.core.providers import human_input

    class Context:
        def __init__(self, task):
            self.task, self.messages, self.ask_for_human_input = task, [], True

        def _format_feedback_message(self, feedback):
            return feedback

        def _invoke_loop(self):
            return Thing(output=f"draft {len(self.messages)}")

    def kickoff(crew, inputs):
        [post] = crew.tasks
        tell(post, "task_started")
        context = Context(post)
        answer = human_input.human.handle_feedback(Thing(output="draft 0"), context)
        return f"{answer.output}, {context.messages}, {context.ask_for_human_input}"

    press = Crew(task("post"), kickoff=kickoff)
    """


def asked_in(messages: list[FromWorker]) -> list[HumanInput]:
    return [message for message in messages if isinstance(message, HumanInput)]


async def test_human_is_asked_until_the_answer_is_approved(crew: Begin) -> None:
    answers = questions(("shorter", False), ("", False), ("fine", True))
    messages, end = await whole(crew(ASKING), answers)
    asked = asked_in(messages)
    assert all("the task post" in each.prompt for each in asked)
    assert [each.output for each in asked] == ["draft 0", "draft 1", "draft 2"]
    assert end == Result(
        output="draft 2, ['shorter', 'This is not good enough yet. Improve it.'], False"
    )


@pytest.mark.parametrize(
    ("process", "limits", "agents"),
    [("sequential", [None, 5, 5], ["b"]), ("hierarchical", [5, 5, None], ["boss"])],
)
async def test_agent_that_asks_a_human_has_no_time_limit(
    crew: Begin, process: str, limits: list[int | None], agents: list[str]
) -> None:
    code = f"""
        from crewai import Crew, Thing, task

        def kickoff(crew, inputs):
            return [each.max_execution_time for each in (asked, free, boss)]

        asked, free, boss = [Thing(role=role, max_execution_time=5) for role in ("b", "c", "boss")]
        press = Crew(
            task("x", agent=asked, human_input=True),
            task("y", agent=asked, human_input=True),
            task("z", agent=free),
            task("without", agent=None, human_input=True),
            kickoff=kickoff,
        )
        press.process, press.manager_agent = {process!r}, boss
        """
    messages, end = await whole(crew(code))
    assert isinstance(end, Result)
    assert end.output_json == limits
    why = "since a human is asked about its answers, whose time would count"
    assert messages[1:] == [
        Log(level="warning", text=f"{agent}: its max_execution_time is left out, {why}")
        for agent in agents
    ]


GATES = """
    from crewai import Crew, Thing, answered, output, task, tell, used
    from crewai.hooks import HookAborted, LLMCallHookContext, ToolCallHookContext

    def gate(context, *words):
        try:
            return context.request_human_input(*words)
        except HookAborted as aborted:
            return f"aborted: {aborted}"

    def kickoff(crew, inputs):
        [post] = crew.tasks
        tell(post, "task_started")
        answered(post, "Thought: It is old.\\nAction: remove\\nAction Input: {}")
        said = [
            gate(ToolCallHookContext("remove", {"file": "a"}, post), "Allow it?", "Type yes:"),
            gate(ToolCallHookContext("remove", {}, post, "removed"), "Good?"),
            gate(LLMCallHookContext([{"role": "user", "content": "Go on"}], post), "Call it?"),
            gate(LLMCallHookContext([], post, "What it said"), "Keep it?"),
            gate(ToolCallHookContext("remove", {}, task("of its agent's own")), "This, too?"),
        ]
        used(post, "remove", file="a")
        tell(post, "task_completed", output=output("x"))
        return [*said, gate(ToolCallHookContext("remove", {}, None), "And this?")]

    press = Crew(task("post"), kickoff=kickoff)
    """


async def test_human_answers_the_question_of_a_hook(crew: Begin) -> None:
    """CrewAI lets the tool run when a hook raises anything but HookAborted."""
    answers = [(" yes ", True), ("", True), ("too dear", False), (" ", False), ("ok", True)]
    messages, end = await whole(crew(GATES), questions(*answers))
    asked = asked_in(messages)
    assert [(each.prompt, each.output) for each in asked] == [
        ("Allow it?\nType yes:", 'remove {"file": "a"}'),
        ("Good?", "remove {}\nremoved"),
        ("Call it?", "Go on"),
        ("Keep it?", "What it said"),
        ("This, too?", "remove {}"),
    ]
    assert {each.task_id for each in asked} == {"post"}
    assert isinstance(end, Result)
    assert end.output_json == [
        "yes",
        "",
        "aborted: too dear",
        "aborted: a human refused",
        "ok",
        "aborted: no human could be asked: it is not clear for which task a human is asked",
    ]
    assert [(step.tool, step.thought) for step in steps(messages)] == [("remove", "It is old.")]


async def test_refused_hook_ends_a_crew_of_an_older_crewai(crew: Begin) -> None:
    """An older CrewAI goes on after whatever a hook raises, and has a task beside others on a
    thread, of which it waits for an Exception or what it returns."""
    code = """
        from concurrent.futures import Future
        from threading import Thread
        from crewai import Crew, hooks, task, tell
        del hooks.HookAborted

        def run(post, future):
            try:
                hooks.ToolCallHookContext("remove", {}, post).request_human_input("Go?")
            except Exception:
                pass
            future.set_result("removed")

        def kickoff(crew, inputs):
            [post] = crew.tasks
            tell(post, "task_started")
            future = Future()
            Thread(target=run, args=(post, future), daemon=True).start()
            return future.result()

        press = Crew(task("post"), kickoff=kickoff)
        """
    _, end = await whole(crew(code), questions(("", False)))
    assert end == Failed(error="a hook of the crew was refused: a human refused")
