"""The CrewAI adapter without CrewAI: its bounds, its order, its errors.

What stands in for CrewAI has the shape of what the adapter uses of it and does nothing by itself:
the crew of each test says what happens. The real one is in `tests/crewai`.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import textwrap
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import trio

from daemon.crews import crewai_adapter, protocol
from daemon.crews.crewai_adapter import (
    Unusable,
    cut,
    encode,
    find,
    hide,
    keep_apart,
    plain,
    share_locks,
    thought_of,
)
from daemon.crews.ends import End
from daemon.crews.protocol import (
    Failed,
    FromWorker,
    HumanFeedback,
    HumanInput,
    Inputs,
    Log,
    Result,
    Started,
    Step,
    TaskCompleted,
    TaskStarted,
    TokenUsage,
    ToolCall,
    ToolResult,
)
from daemon.crews.tools import TOOL_NAMES
from daemon.crews.worker import Stopped, Worker

Begin = Callable[..., AbstractAsyncContextManager[Worker]]

STAND_IN = {
    "dotenv.py": """
        def load_dotenv(path):
            pass
        """,
    "crewai/__init__.py": """
        from types import SimpleNamespace as Thing
        import itertools

        numbers = itertools.count(1)

        class Crew:
            usage_metrics = None

            def __init__(self, *tasks, kickoff=lambda crew, inputs: "done"):
                self.tasks, self._kickoff = list(tasks), kickoff
                self.before_kickoff_callbacks = []
                self.process, self.manager_agent, self.agents = "sequential", None, []

            def kickoff(self, inputs):
                for callback in self.before_kickoff_callbacks:
                    inputs = callback(inputs)
                return self._kickoff(self, inputs)

        def task(name, role="writer\\n", **more):
            fields = dict(id=next(numbers), name=name, description="d\\n", expected_output="e\\n",
                          agent=Thing(role=role), output_file=None, output=None,
                          human_input=False)
            return Thing(**{**fields, **more})

        def output(raw, value=None, tokens=None):
            usage = tokens and Thing(total_tokens=sum(tokens), prompt_tokens=tokens[0],
                                     completion_tokens=tokens[1])
            return Thing(raw=raw, json_dict=value, pydantic=None, token_usage=usage)

        def tell(source, type, **fields):
            from crewai.events import crewai_event_bus
            return crewai_event_bus.emit(source, event=Thing(type=type, **fields))

        def used(task, tool, result="r", **given):
            tell(task, "tool_usage_finished", task_id=task.id, agent_role=task.agent.role,
                 tool_name=tool, tool_args=given, output=result)

        def answered(task, text, prompt="p"):
            tell(task, "llm_call_completed", task_id=task.id, agent_role=task.agent.role,
                 response=text, messages=[{"role": "user", "content": prompt}])
        """,
    "crewai/events/__init__.py": """
        class Bus:
            def emit(self, source, event):
                return event.type

        crewai_event_bus = Bus()
        """,
    "crewai/events/listeners/__init__.py": "",
    "crewai/events/listeners/tracing/__init__.py": "",
    "crewai/events/listeners/tracing/utils.py": """
        def should_enable_tracing():
            return False

        def set_tracing_enabled(enabled):
            pass
        """,
    "crewai/utilities/__init__.py": "",
    "crewai/utilities/string_utils.py": """
        def interpolate_only(input_string, inputs):
            for name, value in inputs.items():
                input_string = input_string.replace("{" + name + "}", str(value))
            return input_string
        """,
    "crewai_core/__init__.py": "",
    "crewai_core/lock_store.py": """
        lock = None

        def set_lock_backend(backend):
            global lock
            lock = backend
        """,
    "crewai/hooks.py": """
        class HookAborted(Exception):
            pass

        class ToolCallHookContext:
            def __init__(self, tool_name, tool_input, task, tool_result=None):
                self.tool_name, self.tool_input, self.task = tool_name, tool_input, task
                self.tool_result = tool_result

            def request_human_input(self, prompt, default_message="Press Enter:"):
                return input()

        class LLMCallHookContext:
            def __init__(self, messages, task, response=None):
                self.messages, self.task, self.response = messages, task, response

            def request_human_input(self, prompt, default_message="Press Enter:"):
                return input()
        """,
    "crewai/core/__init__.py": "",
    "crewai/core/providers/__init__.py": "",
    "crewai/core/providers/human_input.py": """
        def set_provider(provider):
            global human
            human = provider
        """,
    "crewai/tools.py": """
        from pydantic import BaseModel

        class BaseTool(BaseModel):
            name: str
            description: str
            args_schema: type = BaseModel

            def model_post_init(self, context):
                pass
        """,
}


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
    return folder


@pytest.fixture
def crew(begin: Begin, tmp_path: Path) -> Begin:
    """`async with crew(code, inputs={…}, tools=(…)) as worker`: `code` is the project's crew.py."""
    stand_in = write(tmp_path / "stand-in", STAND_IN)

    @asynccontextmanager
    async def start(
        code: str, inputs: Any = None, tools: tuple[str, ...] = (), **environment: str
    ) -> AsyncIterator[Worker]:
        project = write(tmp_path / "project", {"src/press/crew.py": code})
        with trio.fail_after(30):
            async with begin(
                sys.executable,
                crewai_adapter.__file__,
                str(project),
                inputs=Inputs(inputs=inputs or {}, tools=tools),
                environment={"PYTHONPATH": str(stand_in), **environment},
            ) as worker:
                yield worker

    return start


async def whole(worker: Worker) -> tuple[list[FromWorker], End]:
    """What it says, to its program's end."""
    said = [message async for message in worker.messages], await worker.end()
    await worker.leave()
    return said


def steps(messages: list[FromWorker]) -> list[Step]:
    return [message for message in messages if isinstance(message, Step)]


# What is said


def test_the_bounds_are_the_protocols() -> None:
    names = ("MAX_LINE", "MAX_WAITING_CALLS", "MAX_ID")
    assert [getattr(crewai_adapter, name) for name in names] == [
        getattr(protocol, name) for name in names
    ]
    bounds = (protocol.MAX_MESSAGES, protocol.MAX_OUTPUT)
    assert all(map(int.__lt__, crewai_adapter.STEPS_UNTIL, crewai_adapter.CALLS_UNTIL))
    assert all(map(int.__lt__, crewai_adapter.CALLS_UNTIL, bounds))
    assert crewai_adapter.NAME <= protocol.MAX_NAME
    assert crewai_adapter.TEXT <= protocol.MAX_TEXT
    assert crewai_adapter.ERROR <= protocol.MAX_ERROR


def test_it_knows_the_tools_that_there_are() -> None:
    assert set(crewai_adapter.TOOLS) == TOOL_NAMES


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
        assert isinstance(await worker.end(), Result)
    assert [step.result for step in steps(messages)] == [
        '{"title": "T"}',
        '{"title": "first"}',
        '{"title": "shown"}',
        '{"title": "draft"}',
        "[1]",
        "title='T'",
    ]


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


@pytest.mark.parametrize(
    ("returned", "output", "output_json"),
    [
        ("output('a')", "a", None),
        ("output('{\"a\": 1}')", '{"a": 1}', None),
        ("output('a', {'a': 1})", "a", {"a": 1}),
        ("output('a', {'n': float('nan')})", "a", None),
        ("Thing(raw='a', pydantic={'a': 1})", "a", {"a": 1}),  # of an agent's own kickoff
        ("'text'", "text", None),
        ("{'a': [1]}", '{"a": [1]}', {"a": [1]}),
        ("None", "null", None),
    ],
)
async def test_whatever_a_kickoff_returns_is_a_result(
    crew: Begin, returned: str, output: str, output_json: Any
) -> None:
    code = f"""
        from crewai import Crew, Thing, output
        press = Crew(kickoff=lambda crew, inputs: {returned})
        """
    async with crew(code) as worker:
        _, end = await whole(worker)
    assert end == Result(output=output, output_json=output_json)


@pytest.mark.parametrize("returned", ["'text'", "output('text', tokens=(1, 1))"])
async def test_tokens_are_counted_whatever_a_kickoff_returns(crew: Begin, returned: str) -> None:
    """A project's own callback may return what it likes, and know of one agent's tokens alone."""
    code = f"""
        from crewai import Crew, Thing, output

        press = Crew(kickoff=lambda crew, inputs: {returned})
        press.usage_metrics = Thing(total_tokens=7, prompt_tokens=3, completion_tokens=4)
        """
    async with crew(code) as worker:
        _, end = await whole(worker)
    usage = TokenUsage(total_tokens=7, prompt_tokens=3, completion_tokens=4)
    assert end == Result(output="text", token_usage=usage)


async def test_threads_do_not_tear_lines(crew: Begin) -> None:
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
    async with crew(code) as worker:
        messages, end = await whole(worker)
    assert end == Result(output="done")
    assert len(steps(messages)) == 800
    for task in range(8):
        own = [each.tool_input for each in steps(messages) if each.task_id == f"t{task}"]
        assert own == [{"n": n} for n in range(100)]


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


# Bounds


async def test_steps_end_where_the_ends_need_the_room(crew: Begin) -> None:
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
    async with crew(code) as worker:
        messages, end = await whole(worker)
    assert end == Result(output="done")
    assert 7_000 < len(steps(messages)) < 9_000
    warning = "this execution has said so much that further steps are left out"
    assert [message for message in messages if isinstance(message, Log)] == [
        Log(level="warning", text=warning)
    ]
    assert isinstance(messages[-1], TaskCompleted)


async def test_long_texts_are_cut_and_say_so(crew: Begin) -> None:
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
    async with crew(code) as worker:
        messages, end = await whole(worker)
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
    async with crew(code) as worker:
        messages, end = await whole(worker)
    assert end == Result(output="x" * 900_000)
    assert len(messages) == 601


@pytest.mark.parametrize("limit", [100, 1000])
@pytest.mark.parametrize("text", ["x" * 5000, "\x00" * 5000, "ắ" * 5000, '"' * 5000, "\n😀" * 3000])
def test_a_cut_text_fits_and_is_no_shorter_than_it_must_be(text: str, limit: int) -> None:
    size = len(json.dumps(cut(text, limit), ensure_ascii=False).encode())
    assert limit - 40 <= size <= limit
    assert cut(text, limit).endswith(f"… (cut: {len(text)} characters in all)")


def test_a_text_that_fits_is_not_cut() -> None:
    assert cut("ắ" * 30, 92) == "ắ" * 30


def test_a_line_is_utf_8_also_of_half_a_pair() -> None:
    assert encode({"a": "\ud800ắ", "b": None}) == '{"a": "?ắ"}\n'.encode()


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"a": (1, "x", None)}, {"a": [1, "x", None]}),
        (Inputs(inputs={}), {"type": "inputs", "version": 1, "inputs": {}, "tools": []}),
        ({"path": Path("/x")}, {"path": "/x"}),
        (float("inf"), None),
        ({("a", "b"): 1}, None),
    ],
)
def test_what_is_told_of_a_value(value: object, told: object) -> None:
    assert plain(value) == told


def test_a_value_that_is_nested_too_deeply_is_not_told() -> None:
    value: object = 1
    for _ in range(crewai_adapter.NESTING):
        value = [value]
    assert plain(value) == value
    assert plain([value]) is None
    for _ in range(100_000):
        value = [value]
    assert plain(value) is None


@pytest.mark.parametrize(
    ("text", "thought"),
    [
        ("Thought: I see\nAction: find\nAction Input: {}", "I see"),
        ("Thought: I see\nFinal Answer: it", "I see"),
        ("Final Answer: it", None),
        ("no such form", None),
    ],
)
def test_the_thought_in_what_an_agent_writes(text: str, thought: str | None) -> None:
    assert thought_of(text) == thought


# Questions


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


async def test_a_human_is_asked_until_the_answer_is_approved(crew: Begin) -> None:
    answers = iter([("shorter", False), ("", False), ("fine", True)])
    seen = []
    async with crew(ASKING) as worker:
        async for message in worker.messages:
            if isinstance(message, HumanInput):
                seen.append(message.output)
                text, approved = next(answers)
                await worker.send(
                    HumanFeedback(task_id=message.task_id, feedback=text, approved=approved)
                )
        end = await worker.end()
    assert seen == ["draft 0", "draft 1", "draft 2"]
    assert end == Result(
        output="draft 2, ['shorter', 'This is not good enough yet. Improve it.'], False"
    )


async def test_a_stop_ends_it_while_a_human_is_asked(crew: Begin) -> None:
    async with crew(ASKING) as worker:
        async for message in worker.messages:
            if isinstance(message, HumanInput):
                break
        assert await worker.stop() is Stopped.WITHOUT_SIGNAL


@pytest.mark.parametrize(
    ("process", "limits", "agents"),
    [("sequential", [None, 5, 5], ["b"]), ("hierarchical", [5, 5, None], ["boss"])],
)
async def test_the_time_of_a_human_is_not_the_agents(
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
    async with crew(code) as worker:
        messages, end = await whole(worker)
    assert isinstance(end, Result)
    assert end.output_json == limits
    why = "since a human is asked about its answers, whose time would count"
    assert messages[1:] == [
        Log(level="warning", text=f"{agent}: its max_execution_time is left out, {why}")
        for agent in agents
    ]


GATES = """
    from crewai import Crew, Thing, answered, task, tell, used
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
            gate(ToolCallHookContext("remove", {}, None), "Allow it?"),
        ]
        used(post, "remove", file="a")
        return said

    press = Crew(task("post"), kickoff=kickoff)
    """


async def test_a_human_answers_what_a_hook_asks(crew: Begin) -> None:
    """CrewAI lets the tool run when a hook raises anything but HookAborted."""
    answers = iter([(" yes ", True), ("", True), ("too dear", False), (" ", False)])
    asked: list[HumanInput] = []
    told: list[Step] = []
    async with crew(GATES) as worker:
        async for message in worker.messages:
            if isinstance(message, Step):
                told.append(message)
            if isinstance(message, HumanInput):
                asked.append(message)
                text, approved = next(answers)
                await worker.send(
                    HumanFeedback(task_id=message.task_id, feedback=text, approved=approved)
                )
        end = await worker.end()
    assert [(each.prompt, each.output) for each in asked] == [
        ("Allow it?\nType yes:", 'remove {"file": "a"}'),
        ("Good?", "remove {}\nremoved"),
        ("Call it?", "Go on"),
        ("Keep it?", "What it said"),
    ]
    assert isinstance(end, Result)
    assert end.output_json == [
        "yes",
        "",
        "aborted: too dear",
        "aborted: a human refused",
        "aborted: a human can be asked within a task alone",
    ]
    assert [(step.tool, step.thought) for step in told] == [("remove", "It is old.")]


async def test_a_refusal_ends_a_crew_whose_hooks_cannot_stop_anything(crew: Begin) -> None:
    """An older CrewAI goes on after whatever a hook raises."""
    code = """
        from crewai import Crew, hooks, task, tell
        del hooks.HookAborted, hooks.LLMCallHookContext

        def kickoff(crew, inputs):
            try:
                hooks.ToolCallHookContext("remove", {}, crew.tasks[0]).request_human_input("Go?")
            except Exception:
                return "removed"

        press = Crew(task("post"), kickoff=kickoff)
        """
    async with crew(code) as worker:
        async for message in worker.messages:
            if isinstance(message, HumanInput):
                answer = HumanFeedback(task_id=message.task_id, feedback="", approved=False)
                await worker.send(answer)
        assert await worker.end() == Failed(error="SystemExit: a human refused")


async def test_tools_are_called_beside_each_other_and_answered_in_any_order(crew: Begin) -> None:
    code = """
        from concurrent.futures import ThreadPoolExecutor
        from crewai import Crew
        from smartlinkd_crew import ToolFailed, call

        def one(n):
            try:
                return call("convert_links", links=[str(n)])
            except ToolFailed as fault:
                return str(fault)

        def kickoff(crew, inputs):
            with ThreadPoolExecutor(40) as pool:
                return list(pool.map(one, range(40)))

        press = Crew(kickoff=kickoff)
        """
    waiting: list[ToolCall] = []
    answered = 0
    async with crew(code, tools=("convert_links",)) as worker:
        async for message in worker.messages:
            assert isinstance(message, ToolCall | Started)
            if isinstance(message, ToolCall):
                waiting.append(message)
            if len(waiting) == min(16, 40 - answered):
                while waiting:
                    call = waiting.pop()
                    answered += 1
                    n = int(call.arguments["links"][0])  # type: ignore[index, arg-type]
                    how: Any = {"error": f"not {n}"} if n % 2 else {"result": n}
                    await worker.send(ToolResult(call_id=call.call_id, **how))
        end = await worker.end()
    assert isinstance(end, Result)
    assert end.output_json == [f"not {n}" if n % 2 else n for n in range(40)]


async def test_calls_without_end_leave_room_for_the_result(crew: Begin) -> None:
    code = """
        from crewai import Crew
        from smartlinkd_crew import ToolFailed, call

        def kickoff(crew, inputs):
            try:
                for n in range(12_000):
                    call("convert_links", links=[])
            except ToolFailed as fault:
                return str(fault)

        press = Crew(kickoff=kickoff)
        """
    calls = 0
    async with crew(code) as worker:
        async for message in worker.messages:
            if isinstance(message, ToolCall):
                calls += 1
                await worker.send(ToolResult(call_id=message.call_id))
        end = await worker.end()
    assert end == Result(output="convert_links: this execution has had all the calls it may have")
    assert 9_000 < calls < 10_000


async def test_arguments_that_are_no_json_go_nowhere(crew: Begin) -> None:
    code = """
        from crewai import Crew
        from smartlinkd_crew import call
        press = Crew(kickoff=lambda crew, inputs: call("convert_links", links=float("nan")))
        """
    async with crew(code) as worker:
        messages, end = await whole(worker)
    assert messages == [Started(total_tasks=0)]
    assert isinstance(end, Failed)
    assert end.error.startswith("ToolFailed: convert_links: its arguments are no JSON object")


async def test_it_may_call_before_it_has_started(crew: Begin) -> None:
    code = """
        from crewai import Crew
        from smartlinkd_crew import call
        press = Crew(kickoff=lambda crew, inputs, made=call("convert_links"): made)
        """
    async with crew(code) as worker:
        messages = []
        async for message in worker.messages:
            messages.append(message)
            if isinstance(message, ToolCall):
                await worker.send(ToolResult(call_id=message.call_id, result="early"))
        assert await worker.end() == Result(output="early")
    assert [message.type for message in messages] == ["started", "tool_call"]


# Ends


async def test_an_error_is_one_line_without_secrets(crew: Begin) -> None:
    code = """
        import os
        from crewai import Crew

        def kickoff(crew, inputs):
            raise KeyError("no\\n  luck with {MODEL_API_KEY} in {MODE}".format_map(os.environ))

        press = Crew(kickoff=kickoff)
        """
    async with crew(code, MODEL_API_KEY="sk-0123456789", MODE="production") as worker:
        _, end = await whole(worker)
        assert "Traceback" in worker.stderr_tail
    assert end == Failed(error=r"KeyError: 'no\n luck with [MODEL_API_KEY] in production'")


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (
            "import not_there",
            "the module press.crew could not be imported: "
            "ModuleNotFoundError: No module named 'not_there'",
        ),
        ("raise SystemExit(3)", "the module press.crew could not be imported: SystemExit: 3"),
        ("x = (", "the module press.crew could not be imported: SyntaxError: "),
        (
            "from crewai import Crew",
            "press.crew must have one crew (a class marked @CrewBase): it has none",
        ),
        (
            "from crewai import Crew\na, b = Crew(), Crew()",
            "press.crew must have one crew (a class marked @CrewBase): it has a, b",
        ),
        (
            "class A:\n    is_crew_class = True",
            "the crew A could not be made: AttributeError: 'A' object has no attribute 'crew'",
        ),
    ],
)
async def test_a_project_without_a_crew_that_works(crew: Begin, code: str, error: str) -> None:
    async with crew(code) as worker:
        messages, end = await whole(worker)
    assert messages == [Started()]
    assert isinstance(end, Failed)
    assert end.error.startswith(error)


@pytest.mark.parametrize(
    "code",
    [
        """
        from crewai import Crew

        class Press:
            is_crew_class = True

            def crew(self):
                return Crew()

        press = Press()
        """,
        """
        from crewai import Crew
        press = crew = Crew()
        """,
    ],
    ids=["an object of its class", "two names"],
)
async def test_one_crew_however_often_it_is_there(crew: Begin, code: str) -> None:
    async with crew(code) as worker:
        _, end = await whole(worker)
    assert end == Result(output="done")


async def test_an_interpreter_without_crewai(begin: Begin, tmp_path: Path) -> None:
    project = write(tmp_path, {"src/press/crew.py": ""})
    command = (sys.executable, "-I", crewai_adapter.__file__, str(project))
    async with begin(*command) as worker:
        with trio.fail_after(30):
            _, end = await whole(worker)
    assert isinstance(end, Failed)
    assert end.error.startswith(f"CrewAI 1.11 or later is needed in {sys.executable}: Module")


async def test_nothing_is_said_after_the_result(crew: Begin) -> None:
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
    async with crew(code) as worker:
        messages, end = await whole(worker)
    assert (messages, end) == ([Started(total_tasks=1)], Result(output="done"))


def test_a_line_that_is_closed_at_its_last_message_does_not_end_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its project has still to write what it writes at its end."""
    exits: list[int] = []
    monkeypatch.setattr(os, "_exit", exits.append)
    ours, theirs = socket.socketpair()

    class Quick(socket.socket):
        """Its other end is closed, and that is seen, before the sender goes on."""

        def sendall(self, data: Any, *flags: Any) -> None:
            super().sendall(data, *flags)
            if b"result" in data:
                ours.shutdown(socket.SHUT_WR)
                listener.join(0.2)

    before = set(threading.enumerate())
    with ours, Quick(fileno=theirs.detach()) as quick:
        line = crewai_adapter.Line(quick)
        (listener,) = set(threading.enumerate()) - before
        line.result("done", None, None)
        listener.join(20)
    assert not listener.is_alive()
    assert exits == []


def test_secrets_are_told_by_the_names_of_their_variables() -> None:
    environment = {
        "A_TOKEN": "abcdefgh-more",
        "API_KEY": "abcdefgh",
        "AUTH": "no",
        "HOME": "/home/me",
    }
    text = "abcdefgh and abcdefgh-more, no, /home/me"
    assert hide(text, environment) == "[API_KEY] and [A_TOKEN], no, /home/me"


# The project


CREW = {"src/press/crew.py": ""}
TWO = {**CREW, "src/radio/crew.py": ""}


@pytest.mark.parametrize(
    ("files", "found"),
    [
        (CREW, "press.crew"),
        ({**CREW, "pyproject.toml": "tool = 3"}, "press.crew"),
        ({**TWO, "pyproject.toml": "[project]\nname = 'radio'"}, "radio.crew"),
        (
            {**TWO, "pyproject.toml": "[project.scripts]\nrun_crew = 'press.main:run'"},
            "press.crew",
        ),
        ({"crew.json": ""}, "crew.json"),
        ({"crew.jsonc": "", "crew.json": ""}, "crew.jsonc"),
        (
            {**CREW, "own.jsonc": "", "pyproject.toml": "[tool.crewai]\ndefinition = 'own.jsonc'"},
            "own.jsonc",
        ),
    ],
)
def test_what_a_project_is(tmp_path: Path, files: dict[str, str], found: str) -> None:
    crew = find(write(tmp_path, files))
    assert (str(crew.relative_to(tmp_path)) if isinstance(crew, Path) else crew) == found


@pytest.mark.parametrize(
    ("files", "fault"),
    [
        ({}, "there is no crew in "),
        (TWO, "several packages in "),
        ({"pyproject.toml": "[tool.crewai]\ntype = 'flow'"}, "this project is a flow "),
        ({"pyproject.toml": "a = = b"}, "pyproject.toml cannot be read "),
        *(
            (
                {"crew.json": "", "pyproject.toml": f"[tool.crewai]\ndefinition = {name}"},
                "[tool.crewai] definition in pyproject.toml, ",
            )
            for name in ("'../crew.json'", "'not-there.json'", "3", '"a\\u0000b"')
        ),
    ],
)
def test_what_is_no_project(tmp_path: Path, files: dict[str, str], fault: str) -> None:
    with pytest.raises(Unusable) as raised:
        find(write(tmp_path / "project", files) if files else tmp_path)
    assert str(raised.value).startswith(fault)
    assert "; " in str(raised.value)


def test_a_folder_that_there_is_not(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match=r"there is no folder .*; name the one"):
        find(tmp_path / "gone")


def test_what_a_crew_writes_is_kept_apart_from_other_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As CrewAI has it: without `create_directory`, a folder is one that is there."""
    results = ModuleType("crewai.utilities.tool_result_artifacts")
    vars(results)["_TOOL_RESULT_TEMP_DIR"] = Path("/tmp")
    monkeypatch.setitem(sys.modules, results.__name__, results)
    relative = SimpleNamespace(output_file="reports/post.md", create_directory=False)
    absolute = SimpleNamespace(output_file="/srv/post.md", create_directory=False)
    none = SimpleNamespace(output_file=None, create_directory=False)
    log = SimpleNamespace(_path="logs/crew.txt")
    checkpoint = SimpleNamespace(location="./.checkpoints")
    there = SimpleNamespace(checkpoint=SimpleNamespace(location="/srv/press.db"))
    crew = SimpleNamespace(
        tasks=[relative, absolute, none],
        agents=[SimpleNamespace(checkpoint=checkpoint), SimpleNamespace(checkpoint=True), there],
        checkpoint=checkpoint,
        _file_handler=log,
    )
    keep_apart(crew, tmp_path)
    assert (relative.output_file, relative.create_directory) == (
        str(tmp_path / "reports/post.md"),
        True,
    )
    assert (absolute.output_file, absolute.create_directory) == ("/srv/post.md", False)
    assert (none.output_file, none.create_directory) == (None, False)
    assert log._path == str(tmp_path / "logs/crew.txt")
    assert (tmp_path / "logs").is_dir()
    assert checkpoint.location == str(tmp_path / ".checkpoints")
    assert there.checkpoint.location == "/srv/press.db"
    assert vars(results)["_TOOL_RESULT_TEMP_DIR"] == tmp_path


@pytest.mark.parametrize(
    ("template", "topic", "strays"),
    [
        ("reports/{topic}.md", "tea", False),
        ("reports/{topic}.md", "green/../tea", False),
        ("reports/{topic}.md", "/etc/tea", False),
        ("{topic}", "/etc/tea", False),
        ("reports/{topic}.md", "../../tea", True),
        ("{topic}/../tea", "..", True),
        ("reports/.{dot}/.{dot}/tea", "", True),
        ("/srv/{topic}.md", "green/tea", False),
        ("/srv/{topic}.md", "../tea", True),
    ],
)
async def test_an_input_leads_no_file_out_of_its_folder(
    crew: Begin, template: str, topic: str, strays: bool
) -> None:
    code = f"""
        from crewai import Crew, task

        press = Crew(
            task("post", output_file={template!r}),
            kickoff=lambda crew, inputs: inputs["topic"],
        )
        press.before_kickoff_callbacks.append(lambda inputs: {{**inputs, "dot": "."}})
        """
    async with crew(code, inputs={"topic": topic}) as worker:
        messages, end = await whole(worker)
    assert messages == [Started(total_tasks=1)]
    if strays:
        assert isinstance(end, Failed)
        assert end.error.startswith("the inputs lead the output_file of a task elsewhere: /")
    else:
        assert end == Result(output=topic)


class Locks(ModuleType):
    """What CrewAI has for its locks."""

    def __init__(self) -> None:
        super().__init__("crewai_core.lock_store")
        self.lock: Any = None

    def set_lock_backend(self, backend: Any) -> None:
        self.lock = backend


@pytest.fixture
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Locks:
    """The locks of a run at home in `tmp_path/home`, whose storage is `tmp_path/storage`."""
    made = Locks()
    monkeypatch.setitem(sys.modules, made.__name__, made)
    monkeypatch.setenv("CREWAI_STORAGE_DIR", str(tmp_path / "storage"))
    return made


def test_runs_that_share_a_storage_wait_for_one_another(tmp_path: Path, locks: Locks) -> None:
    share_locks(tmp_path / "first")
    first = locks.lock
    share_locks(tmp_path / "second")
    waits = threading.Event()

    def wait() -> None:
        with locks.lock("lancedb:/storage", timeout=20):
            waits.set()

    with first("lancedb:/storage", timeout=0):
        with (
            pytest.raises(TimeoutError, match="the lock lancedb:/storage was not free within 0 s"),
            locks.lock("lancedb:/storage", timeout=0),
        ):
            pass
        with locks.lock("lancedb:/other", timeout=0):
            pass
        second = threading.Thread(target=wait)
        second.start()
    second.join()
    assert waits.is_set()


def test_a_lock_of_what_is_the_runs_own_leaves_nothing_in_the_storage(
    tmp_path: Path, locks: Locks
) -> None:
    share_locks(tmp_path / "home")
    with locks.lock(f"file:{tmp_path}/home/crew.txt", timeout=0):
        assert len(list((tmp_path / "home/.locks").iterdir())) == 1
    assert not (tmp_path / "storage").exists()


@pytest.mark.parametrize("storage", ["press", "{home}/crewai"])
def test_a_storage_that_nobody_shares_has_crewais_own_locks(
    tmp_path: Path, locks: Locks, monkeypatch: pytest.MonkeyPatch, storage: str
) -> None:
    monkeypatch.setenv("CREWAI_STORAGE_DIR", storage.format(home=tmp_path / "home"))
    share_locks(tmp_path / "home")
    assert locks.lock is None


@pytest.mark.parametrize("module", [None, ModuleType("crewai_core.lock_store")])
def test_a_crewai_whose_locks_cannot_be_replaced_keeps_them(
    tmp_path: Path, locks: Locks, monkeypatch: pytest.MonkeyPatch, module: ModuleType | None
) -> None:
    monkeypatch.setitem(sys.modules, locks.__name__, module)
    share_locks(tmp_path / "home")
    assert not (tmp_path / "storage").exists()


async def test_a_run_shares_its_storage_with_others(crew: Begin, tmp_path: Path) -> None:
    code = """
        from crewai import Crew
        from crewai_core import lock_store

        with lock_store.lock("chromadb", timeout=0):
            press = Crew()
        """
    async with crew(code, CREWAI_STORAGE_DIR=str(tmp_path / "storage")) as worker:
        _, end = await whole(worker)
    assert end == Result(output="done")
    assert len(list((tmp_path / "storage/.locks").iterdir())) == 1
