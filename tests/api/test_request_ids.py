"""Request ids through the whole daemon: in each answer, and in the log lines of each part."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import trio

from smartlinkd import logs
from smartlinkd.admin.control_socket import call
from smartlinkd.admin.prometheus import Metrics
from smartlinkd.logs.context import ContextFilter
from smartlinkd.sandbox.server import Sandbox

if TYPE_CHECKING:
    from tests.api.conftest import Daemon, Start

CREW = {"name": "echo", "runner": "command", "bind": "127.0.0.1:0"}
WORKER = """
import os, socket
ends = socket.socket(fileno=int(os.environ["SMARTLINKD_FD"]))
ends.recv(65536)
ends.sendall(b'{"type": "started"}\\n{"type": "result", "output": "done"}\\n')
"""
PATIENCE = 15.0

Lines = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def lines() -> Iterator[Lines]:
    """Return the lines that the daemon has logged, as JSON objects."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logs.JsonFormatter())
    handler.addFilter(ContextFilter())
    ours = logging.getLogger("smartlinkd")
    before = ours.level
    ours.addHandler(handler)
    ours.setLevel(logging.INFO)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    ours.removeHandler(handler)
    ours.setLevel(before)


@pytest.fixture
async def whole(start: Start) -> Daemon:
    """A daemon with a crew that has an address of its own, too."""
    return await start(crews=[{**CREW, "command": [sys.executable, "-c", WORKER]}])


async def crew_url(daemon: Daemon) -> str:
    report = await daemon.get("/api/status", token=await daemon.login())
    (crew,) = report.json()["crews"]
    return str(crew["baseAddress"])


async def crew_token(daemon: Daemon) -> str:
    answer = await call(daemon.state, "crew token", {"name": "echo"})
    return str(answer["token"])


async def test_main_address_answers_with_the_request_id(whole: Daemon) -> None:
    for method, path, status in [
        ("GET", "/livez", 200),
        ("GET", "/docs", 200),
        ("GET", "/app/", 200),
        ("GET", "/metrics", 200),
        ("GET", "/openapi.json", 200),
        ("GET", "/api/status", 403),
        ("GET", "/nothing", 404),
        ("POST", "/api/health", 405),
        ("POST", "/api/login", 404),
        ("GET", "/crews/echo/inputs", 401),
        ("POST", "/crews/echo/kickoff", 401),
    ]:
        answer = await whole.ask(method, path, X_Request_Id="mine")
        assert (answer.status_code, answer.headers["X-Request-Id"]) == (status, "mine"), path


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/inputs", 401), ("GET", "/nothing", 404)]
)
async def test_crews_own_address_answers_with_the_request_id_in_its_own_shape(
    whole: Daemon, method: str, path: str, status: int
) -> None:
    url = await crew_url(whole)
    transport = httpx.AsyncHTTPTransport(verify=False)
    async with httpx.AsyncClient(transport=transport, base_url=url, trust_env=False) as client:
        answer = await client.request(method, path, headers={"X-Request-Id": "mine"})
    assert (answer.status_code, answer.headers["X-Request-Id"]) == (status, "mine")
    assert set(answer.json()) == {"error", "message"}


async def test_log_lines_of_other_parts_have_the_request_id(
    selling: Daemon, sandbox: Sandbox, lines: Lines
) -> None:
    token = await selling.login()
    short = f"{sandbox.short_url}/nowhere"
    body = {"links": [short]}
    answer = await selling.ask("POST", "/api/convert", body, token=token, X_Request_Id="mine")
    assert answer.status_code == 200
    (line,) = [line for line in lines() if "/nowhere" in line["message"]]
    assert (line["request_id"], line["actor"]) == ("mine", "conversion")


async def test_log_line_of_a_bug_has_the_request_id_of_the_answer(
    whole: Daemon, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Metrics, "text", fail)
    answer = await whole.get("/metrics")
    assert answer.status_code == 500
    assert set(answer.json()) == {"ok", "error"}
    (line,) = [line for line in lines() if line["message"] == "GET /metrics failed"]
    assert line["request_id"] == answer.headers["X-Request-Id"]
    assert line["actor"] == "http"


async def test_execution_is_logged_with_its_request_id_once_and_its_own_id(
    whole: Daemon, lines: Lines
) -> None:
    token = await crew_token(whole)
    body: dict[str, object] = {"inputs": {}}
    answer = await whole.ask("POST", "/crews/echo/kickoff", body, token=token, X_Request_Id="mine")
    kickoff_id = answer.json()["kickoff_id"]
    state = "PENDING"
    with trio.fail_after(PATIENCE):
        while state in ("PENDING", "RUNNING"):
            status = await whole.get(f"/crews/echo/status/{kickoff_id}?wait=10", token=token)
            state = status.json()["state"]
    assert state == "SUCCESS"
    by_event = {line["event"]: line for line in lines() if "event" in line}
    accepted, finished = by_event["execution_accepted"], by_event["execution_finished"]
    for line in (accepted, finished):
        assert (line["crew"], line["kickoff_id"], line["actor"]) == ("echo", kickoff_id, "executor")
    assert accepted["request_id"] == "mine"
    runs = [line for line in lines() if line.get("kickoff_id") == kickoff_id]
    assert [line.get("request_id") for line in runs[1:]] == [None] * (len(runs) - 1)
    assert len(runs) >= 2


async def test_control_command_has_a_request_id(whole: Daemon, lines: Lines) -> None:
    for _ in range(2):
        await call(whole.state, "account clear")
    asked = [line for line in lines() if line["message"] == "control command: account clear"]
    assert len({line["request_id"] for line in asked}) == 2
    assert {line["actor"] for line in asked} == {"control"}
