"""Requests of a crew of the real CrewAI: tools, human feedback; and its end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio
from pydantic import JsonValue

from smartlinkd.crews.protocol import (
    Failed,
    HumanInput,
    Log,
    Result,
    Step,
    TaskCompleted,
    TaskStarted,
    ToolCall,
    ToolResult,
)
from smartlinkd.crews.worker import Stopped
from tests.crewai.conftest import one_task
from tests.crews.scripts import Answer, questions

if TYPE_CHECKING:
    from tests.crewai.conftest import Project, Run, Start

LINK = "https://shopee.vn/product/1/2"
ENTRY: JsonValue = {"mapping": {LINK: {"shortLink": "https://s.shopee.vn/x", "failCode": 0}}}


JSON_CREW = {
    "pyproject.toml": '[tool.crewai]\ntype = "crew"\ndefinition = "crew.jsonc"\n',
    "crew.jsonc": """{
        // what `crewai create` writes has comments
        "name": "press",
        "agents": ["writer"],
        "tasks": [{
            "name": "post",
            "description": "Write of {topic} in {language}",
            "expected_output": "A post",
            "agent": "writer"
        }],
        "inputs": {"topic": "tea", "language": "English"}
    }""",
    "agents/writer.jsonc": """{
        "role": "{language} writer", "goal": "Write", "backstory": "b",
        "llm": "openai/gpt-4o-mini", "tools": ["smartlinkd_crew:ConvertLinks"]
    }""",
}
CLASSIC_CREW = one_task(
    imports="from smartlinkd_crew import tools", agent=", tools=tools, llm='gpt-4o-mini'"
)


def calls(**answered: Any) -> Answer:
    """Return an answer to each tool call: this result or error."""
    return lambda said: (
        ToolResult(call_id=said.call_id, **answered) if isinstance(said, ToolCall) else None
    )


# Tools


async def test_an_agent_converts_links(run: Run, project: Project, model: Any) -> None:
    model.calls("convert_links", links=[LINK], subIds=["tea"])
    model.answers("Buy it.")
    answer, tools = calls(result=ENTRY), ("convert_links",)
    messages, end = await run(project(CLASSIC_CREW), answer, tools=tools)
    assert isinstance(end, Result), end
    (call,) = [message for message in messages if isinstance(message, ToolCall)]
    arguments = {"links": [LINK], "subIds": ["tea"]}
    assert (call.tool, call.arguments) == ("convert_links", arguments)
    (used, told) = [message for message in messages if isinstance(message, Step)]
    assert (used.tool, used.tool_input, told.result) == ("convert_links", arguments, "Buy it.")
    assert json.loads(used.result or "") == ENTRY
    assert "https://s.shopee.vn/x" in model.request_text(-1)


async def test_json_crew_has_its_own_inputs_and_tools(
    run: Run, project: Project, model: Any
) -> None:
    model.calls("convert_links", links=[LINK])
    model.answers("Green tea is new.")
    answer, inputs = calls(result=ENTRY), {"language": "Vietnamese"}
    messages, end = await run(project(JSON_CREW), answer, inputs=inputs, tools=("convert_links",))
    assert messages[1] == TaskStarted(
        task_id="post",
        name="post",
        agent="Vietnamese writer",
        description="Write of tea in Vietnamese",
        expected_output="A post",
    )
    assert [message.tool for message in messages if isinstance(message, ToolCall)] == [
        "convert_links"
    ]
    assert isinstance(end, Result)
    assert end.output == "Green tea is new."


async def test_model_without_function_calling_uses_the_tool(
    run: Run, project: Project, model: Any
) -> None:
    """As of a model without function calling. This model does not report calls to CrewAI either."""
    files = one_task(
        imports="""
            from crewai import BaseLLM
            from smartlinkd_crew import tools

            class Thinker(BaseLLM):
                def call(self, messages, *args, **kwargs):
                    if "MADE" in str(messages):
                        return "Thought: That is all.\\nFinal Answer: Buy it."
                    return ('Thought: I need links.\\nAction: convert_links\\n'
                            'Action Input: {"links": ["a"]}')

                def supports_function_calling(self):
                    return False
            """,
        agent=', tools=tools, llm=Thinker(model="own")',
    )
    answer, tools = calls(result="MADE"), ("convert_links",)
    messages, end = await run(project(files), answer, tools=tools)
    assert isinstance(end, Result), end
    assert end.output == "Buy it."
    steps = [message for message in messages if isinstance(message, Step)]
    assert [(step.tool, step.result) for step in steps] == [
        ("convert_links", '"MADE"'),
        (None, "Buy it."),
    ]


async def test_agent_gets_the_error_of_a_failed_tool(
    run: Run, project: Project, model: Any
) -> None:
    model.calls("convert_links", links=[LINK])
    model.answers("I could not.")
    answer, tools = calls(error="no affiliate cookie is stored"), ("convert_links",)
    messages, end = await run(project(CLASSIC_CREW), answer, tools=tools)
    assert isinstance(end, Result), end
    steps = [message for message in messages if isinstance(message, Step)]
    assert steps[0].result == "failed: no affiliate cookie is stored"
    assert "no affiliate cookie is stored" in model.request_text(-1)


async def test_forbidden_tool_ends_a_json_crew_at_once(run: Run, project: Project) -> None:
    _, end = await run(project(JSON_CREW))
    assert isinstance(end, Failed)
    assert "this crew may not use convert_links; if it should, add it to `tools`" in end.error


# Human feedback


async def test_agent_gets_the_feedback_of_a_human(run: Run, project: Project, model: Any) -> None:
    """The log says that the limit does not count; a test that outlasts the limit would be slow."""
    model.answers("A post.", "A shorter post.", "Post.")
    answer = questions(("make it shorter", False), (" ", False), ("", True))
    folder = project(one_task(agent=", max_execution_time=1", task=", human_input=True"))
    messages, end = await run(folder, answer)
    asked = [message.output for message in messages if isinstance(message, HumanInput)]
    assert asked == ["A post.", "A shorter post.", "Post."]
    assert "make it shorter" in model.request_text(1)
    assert "This is not good enough yet. Improve it." in model.request_text(2)
    assert isinstance(end, Result)
    assert end.output == "Post."
    steps = [message.result for message in messages if isinstance(message, Step)]
    assert steps == asked
    (log,) = [message for message in messages if isinstance(message, Log)]
    assert log.text.startswith("Writer: its max_execution_time is left out")


async def test_questions_about_tasks_beside_each_other_come_one_by_one(
    run: Run, project: Project, model: Any
) -> None:
    """The protocol allows one question at a time; a second one would end the run."""
    model.answers("A post.")
    folder = project(
        {
            "src/press/crew.py": """
                from crewai import Agent, Crew, Task

                def task(name, beside):
                    agent = Agent(role=f"{name} writer", goal="Write", backstory="b")
                    return Task(name=name, description=name, expected_output="x", agent=agent,
                                async_execution=beside, human_input=beside)

                tasks = [task("a", True), task("b", True), task("c", False)]
                press = Crew(agents=[task.agent for task in tasks], tasks=tasks)
                """
        }
    )
    messages, end = await run(folder, questions(("", True), ("", True)))
    assert isinstance(end, Result), end
    asked = [message.task_id for message in messages if isinstance(message, HumanInput)]
    assert sorted(asked) == ["a", "b"]
    done = [message.task_id for message in messages if isinstance(message, TaskCompleted)]
    assert sorted(done) == ["a", "b", "c"]


@pytest.mark.parametrize("approved", [True, False])
async def test_a_human_decides_whether_a_tool_is_used(
    run: Run, project: Project, model: Any, approved: bool
) -> None:
    model.calls("remove", file="a.txt")
    model.answers("That is all.")
    files = one_task(
        imports="""
            from pathlib import Path
            from crewai.hooks import before_tool_call
            from crewai.tools import tool

            @tool("remove")
            def remove(file: str) -> str:
                "Removes a file."
                Path(file).unlink()
                return "removed"

            @before_tool_call
            def gate(context):
                if context.request_human_input("Remove it?", "Type yes:") != "yes":
                    return False
            """,
        agent=", tools=[remove], llm='gpt-4o-mini'",
    )
    folder = project({**files, "a.txt": ""})
    messages, end = await run(folder, questions(("yes", approved)))
    assert isinstance(end, Result), end
    (asked,) = [message for message in messages if isinstance(message, HumanInput)]
    assert (asked.prompt, asked.output) == ("Remove it?\nType yes:", 'remove {"file": "a.txt"}')
    assert (folder / "a.txt").exists() is not approved


# The end


async def test_worker_stops_while_its_model_does_not_answer(
    start: Start, project: Project, model: Any
) -> None:
    model.is_silent = True
    model.answers("never")
    with trio.fail_after(60):
        async with start(project(one_task())) as worker:
            async for _ in worker.channel:
                break
            await trio.to_thread.run_sync(model.asked.wait, abandon_on_cancel=True)
            assert await worker.stop() is Stopped.WITHOUT_SIGNAL


async def test_wrong_model_key_fails_with_one_line(run: Run, project: Project, model: Any) -> None:
    """The error names the fault in one line, without the key, even if the model quotes it."""
    model.refuses(401, "Incorrect API key: sk-this-is-the-key-of-the-model")
    messages, end = await run(project(one_task()))
    assert isinstance(end, Failed)
    assert "401" in end.error
    assert "Incorrect API key: [OPENAI_API_KEY]" in end.error
    assert "\n" not in end.error
    assert "sk-this-is" not in "".join(message.model_dump_json() for message in messages)
    logs = [message for message in messages if isinstance(message, Log)]
    assert {log.level for log in logs} == {"warning"}
    assert "Incorrect API key" in logs[0].text


async def test_answer_that_a_guardrail_refuses_is_repeated(
    run: Run, project: Project, model: Any
) -> None:
    model.answers("A long post.", "Post.")
    rule = "lambda out: (True, out.raw) if len(out.raw) < 6 else (False, 'too long')"
    files = one_task(task=f", guardrail={rule}")
    messages, end = await run(project(files))
    assert isinstance(end, Result), end
    assert end.output == "Post."
    logs = [message for message in messages if isinstance(message, Log)]
    assert logs == [Log(text="a guardrail refused an answer: too long")]
    assert "too long" in model.request_text(1)


@pytest.mark.parametrize("topic", ["tea", "../../taken"])
async def test_hook_that_changes_an_input_moves_no_file_out_of_the_project(
    run: Run, project: Project, model: Any, tmp_path: Path, topic: str
) -> None:
    model.answers("A post.")
    files = one_task(
        imports=f"""
            from crewai.hooks import InterceptionPoint, on

            @on(InterceptionPoint.INPUT)
            def choose(context):
                context.payload = {{**(context.payload or {{}}), "topic": {topic!r}}}
            """,
        task=", output_file='reports/{topic}.md'",
    )
    _, end = await run(project(files))
    if topic == "tea":
        assert isinstance(end, Result), end
    else:
        assert isinstance(end, Failed)
        assert end.error.startswith("the inputs lead the output_file of a task elsewhere: ")
        assert model.requests == []


async def test_only_a_placeholder_leaves_a_file_at_its_absolute_path(
    run: Run, project: Project, model: Any, tmp_path: Path
) -> None:
    model.answers("A post.")
    for name in ("{topic}", "post"):
        _, end = await run(
            project(one_task(task=f", output_file='{tmp_path}/{name}.md'")), inputs={"topic": "tea"}
        )
        assert isinstance(end, Result), end
    assert (tmp_path / "tea.md").exists()
    assert not (tmp_path / "post.md").exists()


async def test_missing_input_fails_the_execution(run: Run, project: Project) -> None:
    files = one_task(task="").copy()
    files["src/press/crew.py"] = files["src/press/crew.py"].replace('"Write"', '"Write of {topic}"')
    _, end = await run(project(files), inputs={"other": 1})
    assert isinstance(end, Failed)
    assert "topic" in end.error
