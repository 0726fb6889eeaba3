"""Published clients of deployed CrewAI crews: their requests, and how they judge the answers.

The tests imitate the clients. The first two were run unmodified against a daemon, and their
requests recorded; the tests send the same headers and bodies and apply the clients' rules to the
answers. The others imitate the clients' source: ruby-crewai 0.1.0, a human-in-the-loop demo
(crewai-LL-series, LL4), and .NET's PostAsJsonAsync.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import trio
from pydantic import SecretBytes

from smartlinkd.crews.catalog.catalog import Catalog
from smartlinkd.crews.executor import Executor
from smartlinkd.crews.model import Input
from smartlinkd.crews.worker import WorkerSettings
from smartlinkd.store.actor import Store
from smartlinkd.store.model import Retention, Status

if TYPE_CHECKING:
    from tests.api.crews.conftest import Address, FakeExecutor, ServeCrews, ServedCrews

SOON = 15.0  # seconds; a longer wait is a hang
WAITING = "waiting_for_human_input"

WORKER = """\
import json, os, socket, sys

ends = socket.socket(fileno=int(os.environ["SMARTLINKD_FD"]))
heard, line = ends.makefile("r", encoding="utf-8"), ends.makefile("w", encoding="utf-8")

def say(type, **fields):
    print(json.dumps({"type": type, **fields}), file=line, flush=True)

def hear():
    message = json.loads(heard.readline())
    return sys.exit("stopped") if message["type"] == "stop" else message

inputs = hear()["inputs"]
say("started", total_tasks=1)
say("task_started", task_id="write", name="write", agent="writer")
say("step", task_id="write", thought="hm", tool="look", tool_input={"q": 1}, result="seen")
if inputs["topic"] == "quota":
    say("failed", error="the model refused: quota exceeded")
    sys.exit()
text = json.dumps(inputs, sort_keys=True)
if inputs["topic"] == "ask":
    say("human_input", task_id="write", prompt="Good?", output=text)
    answer = hear()
    text = f"{answer['approved']}: {answer['feedback']}"
say("task_completed", task_id="write", output=text)
say("result", output=text)
"""


@pytest.fixture
def crews(crews: Catalog, tmp_path: Path) -> Catalog:
    program = tmp_path / "worker.py"
    program.write_text(WORKER)
    worker = WorkerSettings((sys.executable, "-S", str(program)), {}, memory=2**28, grace=2.0)
    inputs = (Input("topic"), Input("region", required=False, default="global"))
    crew = replace(crews.crews["alpha"], worker=worker, inputs=inputs)
    return Catalog({"alpha": crew}, broken=crews.broken, default="alpha")


@pytest.fixture
async def whole(
    nursery: trio.Nursery, serve_crews: ServeCrews, crews: Catalog, tmp_path: Path
) -> AsyncIterator[ServedCrews]:
    """The crew of this module with the real executor, and its own store."""
    store = Store(
        tmp_path / "journal.sqlite3",
        key=SecretBytes(bytes(32)),
        retention=Retention(timedelta(days=1), 100),
    )
    executor = Executor(
        crews, store, tools={}, runs=tmp_path / "runs", on_calls_queued=lambda: None
    )
    await nursery.start(store.run)
    await nursery.start(executor.run)
    async with serve_crews(executor) as made:
        yield made


async def send(
    at: Address, method: str, path: str, body: object, headers: dict[str, str]
) -> httpx.Response:
    """Send a request like both recorded clients: JSON with Python's spaces, and a Content-Type even
    without a body."""
    content = None if body is None else json.dumps(body)
    whole = {"Content-Type": "application/json"} | headers
    return await at.http.request(method, at.url + path, headers=whole, content=content)


# Semantic Kernel


@dataclass
class SemanticKernel:
    """Semantic Kernel's CrewAI plugin, `CrewAIEnterprise(endpoint, token)` (1.45.0).

    It sends null webhooks and a header name with an underscore, and knows a fixed set of states.
    """

    at: Address
    token: str

    async def ask(self, method: str, path: str, body: object = None) -> Any:
        headers = {
            "Authorization": f"Bearer {self.token}",
            "user_agent": "semantic-kernel-python/1.45.0",
            "User-Agent": "Python/3.11 aiohttp/3.14.5",
        }
        answer = await send(self.at, method, path, body, headers)
        answer.raise_for_status()
        return answer.json()

    async def kickoff(self, inputs: dict[str, Any]) -> str:
        nobody = {"taskWebhookUrl": None, "stepWebhookUrl": None, "crewWebhookUrl": None}
        answer = await self.ask("POST", "/kickoff", {"inputs": inputs, **nobody})
        assert isinstance(answer["kickoff_id"], str)
        assert re.fullmatch("[A-Za-z0-9_-]+", answer["kickoff_id"])  # the client's own check
        return str(answer["kickoff_id"])

    async def status(self, kickoff_id: str) -> Any:
        """Return a status that the client's models accept; they raise for others."""
        answer = await self.ask("GET", f"/status/{kickoff_id}")
        assert answer["state"] in {
            "PENDING", "STARTED", "RUNNING", "SUCCESS", "FAILED", "FAILURE", "NOT FOUND",
        }  # fmt: skip
        assert isinstance(answer["result"], str | None)
        assert isinstance(answer["last_step"], dict | None)
        return answer

    async def wait(self, kickoff_id: str) -> str:
        """Return the result for the user. The client means to raise for a failure, and never
        does."""
        with trio.fail_after(SOON):
            while True:
                answer = await self.status(kickoff_id)
                if answer["state"] in {"FAILED", "FAILURE", "SUCCESS", "NOT FOUND"}:
                    return answer["result"] or ""


@pytest.mark.parametrize(("where", "who"), [("own", "alpha"), ("under", "alpha"), ("root", "ann")])
async def test_semantic_kernel_completes_a_run(whole: ServedCrews, where: str, who: str) -> None:
    kernel = SemanticKernel(whole.at(where), whole.tokens[who])
    inputs = {"topic": 2024, "some": [1, {"a": None}], "region": None}
    kickoff_id = await kernel.kickoff(inputs)
    result = await kernel.wait(kickoff_id)
    assert json.loads(result) == inputs
    # A Next.js front end reads the output from here.
    told = await kernel.status(kickoff_id)
    assert told["last_executed_task"]["output"] == result


async def test_semantic_kernel_shows_the_error_of_a_failed_run(whole: ServedCrews) -> None:
    kernel = SemanticKernel(whole.own, whole.token)
    told = await kernel.wait(await kernel.kickoff({"topic": "quota"}))
    assert told == "the model refused: quota exceeded"


# CrewAI's own tool


@dataclass
class AutomationTool:
    """CrewAI's InvokeCrewAIAutomationTool (crewai-tools 1.15.30).

    It reads each answer as a JSON object and ignores the status, like CrewAI's MCP server.
    """

    at: Address
    token: str

    async def ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        headers = {
            "User-Agent": "python-requests/2.34.2",
            "Connection": "keep-alive",
            "Authorization": f"Bearer {self.token}",
        }
        read = (await send(self.at, method, path, body, headers)).json()
        assert isinstance(read, dict)  # the client does not check this
        return read

    async def run(self, **inputs: Any) -> tuple[str, str]:
        """Return the outcome, and the text that an agent gets from the tool."""
        answer = await self.ask("POST", "/kickoff", {"inputs": inputs})
        kickoff_id = answer.get("kickoff_id")
        return await self.wait(kickoff_id) if kickoff_id else ("not started", str(answer))

    async def wait(self, kickoff_id: str) -> tuple[str, str]:
        with trio.fail_after(SOON):
            while True:
                outcome = await self.poll(kickoff_id)
                if outcome is not None:
                    return outcome

    async def poll(self, kickoff_id: str) -> tuple[str, str] | None:
        """Return the outcome, or None while the execution runs. Other answers are ignored."""
        answer = await self.ask("GET", f"/status/{kickoff_id}")
        match answer.get("state", "").lower():
            case "success":
                return "succeeded", str(answer["result"])
            case "failed":
                return "failed", str(answer)
        return None


@pytest.mark.parametrize("where", ["own", "under", "root"])
async def test_automation_tool_completes_a_run(whole: ServedCrews, where: str) -> None:
    told = await AutomationTool(whole.at(where), whole.token).run(topic="2024", region="asia")
    assert told == ("succeeded", '{"region": "asia", "topic": "2024"}')


async def test_automation_tool_shows_the_error_of_a_failed_run(whole: ServedCrews) -> None:
    how, told = await AutomationTool(whole.own, whole.token).run(topic="quota")
    assert how == "failed"
    assert "the model refused: quota exceeded" in told


async def test_automation_tool_tells_which_input_is_missing(whole: ServedCrews) -> None:
    how, told = await AutomationTool(whole.own, whole.token).run(region="asia")
    assert how == "not started"
    assert "'missing_inputs': ['topic']" in told


async def test_dotnet_json_content_is_read(served: ServedCrews, executor: FakeExecutor) -> None:
    async def in_chunks() -> AsyncIterator[bytes]:
        yield b'{"inputs":{"topic":"1"},"meta":null,"taskWebhookUrl":null,'
        yield b'"stepWebhookUrl":null,"crewWebhookUrl":null}'

    media = "application/json; charset=utf-8"
    headers = {"Authorization": f"Bearer {served.token}", "Content-Type": media}
    url = f"{served.own.url}/kickoff"
    answer = await served.own.http.post(url, headers=headers, content=in_chunks())
    assert answer.status_code == 200
    assert executor.kickoffs[0][1].inputs == {"topic": "1"}


async def test_ruby_gem_shows_the_message(served: ServedCrews, executor: FakeExecutor) -> None:
    known = executor.add(status=Status.RUNNING)
    headers = {
        "Authorization": f"Bearer {served.token}",
        "User-Agent": "ruby-crewai/0.1.0 Ruby/3.3",
    }
    for kickoff_id, word in ((known.id, "running"), ("k-abc-123", None)):
        answer = await served.own.http.get(f"{served.own.url}/{kickoff_id}/status", headers=headers)
        assert re.search(r"\bjson\b", answer.headers["Content-Type"])  # the gem's own check
        assert answer.json().get("status") == word
        assert word or answer.json()["message"].startswith("kickoff_id: ")


@pytest.mark.parametrize("approved", [True, False])
async def test_human_demo_answers_by_the_task_s_name(whole: ServedCrews, approved: bool) -> None:
    tool = AutomationTool(whole.own, whole.token)
    kickoff_id = (await tool.ask("POST", "/kickoff", {"inputs": {"topic": "ask"}}))["kickoff_id"]
    with trio.fail_after(SOON):
        while (told := await tool.ask("GET", f"/status/{kickoff_id}"))["status"] != WAITING:
            pass
    assert told["current_task"] == "write"
    ids = {"executionId": kickoff_id, "taskId": "write"}
    decision = {"human_feedback": "as agreed", "is_approve": approved}
    beside = {"output": "a draft", "inputs": {"topic": "ask"}, "taskWebhookUrl": None}
    answer = await whole.own.post("/resume", whole.token, ids | decision | beside)
    assert answer.status_code == 200, answer.text
    assert await tool.wait(kickoff_id) == ("succeeded", f"{approved}: as agreed")
