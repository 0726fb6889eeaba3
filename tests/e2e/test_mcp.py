"""MCP with a daemon and the sandbox: the official client, and single messages."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
import trio

from smartlinkd.mcp.tools import TOOLS, ToolApi
from tests.contract.keys import key_for
from tests.e2e.conftest import DEAL_POST, ROOT, Daemon, Json, Portal, Running

SLOW = {
    "name": "slow",
    "runner": "command",
    "command": [sys.executable, "-c", "import time; time.sleep(300)"],
}
ALL = ("convert", "status", "history", "crews")


@pytest.fixture(scope="module")
def mcp_daemon(running: Running) -> Iterator[Daemon]:
    """A daemon with MCP and two crews."""
    with running(mcp={"enabled": True}, crews=[DEAL_POST, SLOW]) as daemon:
        daemon.wait_for_browser()
        yield daemon


async def by_client(
    daemon: Daemon, key: str, home: Path, calls: Sequence[tuple[str, Json]], *, url: str | None
) -> Json:
    done = await trio.run_process(
        [sys.executable, "-m", "tests.e2e.mcp_client", *([url] if url else [])],
        cwd=ROOT,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "SMARTLINKD_URL": daemon.url,
            "SMARTLINKD_KEY": key,
        },
        stdin=json.dumps(calls).encode(),
        capture_stdout=True,
    )
    found: Json = json.loads(done.stdout)
    return found


async def call(daemon: Daemon, key: str, tool: str, arguments: Json) -> Json:
    """Call a tool with one message, and return its result."""
    params = {"name": tool, "arguments": arguments}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = {"Accept": "application/json, text/event-stream"}
    answer = await daemon.ask("POST", "/mcp", body, token=key, headers=headers)
    assert answer.status_code == 200, answer.text
    message = json.loads(answer.text.partition("data: ")[2])
    found: Json = message["result"]
    return found


@pytest.mark.parametrize("is_over_http", [True, False])
async def test_official_client_converts_and_runs_a_crew(
    mcp_daemon: Daemon, portal: Portal, tmp_path: Path, is_over_http: bool
) -> None:
    await mcp_daemon.sync(portal.account())
    link = portal.link(portal.item())
    found = await by_client(
        mcp_daemon,
        await key_for(mcp_daemon, *ALL),
        tmp_path,
        [
            ("convert_links", {"links": [link], "sub_ids": ["ai"]}),
            ("run_crew", {"crew": "deal-post", "inputs": {"links": link}}),
            ("history", {"q": str(link).rpartition("/")[2], "limit": 1}),
        ],
        url=f"{mcp_daemon.url}/mcp" if is_over_http else None,
    )
    assert len(found["tools"]) == 8
    converted, ran, listed = found["results"]
    assert converted["structuredContent"]["mapping"][link]["failCode"] == 0
    assert ran["structuredContent"]["state"] == "SUCCESS"
    assert ran["progress"][-1] == 3
    assert listed["structuredContent"]["entries"][0]["link"] == link


async def test_key_sees_and_uses_the_tools_of_its_scopes_alone(
    mcp_daemon: Daemon, tmp_path: Path
) -> None:
    key = await key_for(mcp_daemon, "status")
    found = await by_client(mcp_daemon, key, tmp_path, [], url=f"{mcp_daemon.url}/mcp")
    assert found["tools"] == ["account_status"]
    refused = await call(mcp_daemon, key, "list_crews", {})
    assert refused["isError"]
    assert "does not have the scope crews" in refused["content"][0]["text"]


@pytest.mark.parametrize(
    ("tool", "arguments", "says"),
    [
        ("convert_links", {"links": []}, "links: has too few items"),
        ("convert_links", {"link": "x"}, "links"),
        ("run_crew", {"crew": "nobody", "inputs": {}}, "no crew of that name"),
        ("run_crew", {"crew": "deal-post", "inputs": {}}, "missing: links"),
        ("nothing", {}, "there is no such tool"),
    ],
)
async def test_wrong_call_is_an_error_with_the_remedy(
    mcp_daemon: Daemon, tool: str, arguments: dict[str, Any], says: str
) -> None:
    result = await call(mcp_daemon, await key_for(mcp_daemon, *ALL), tool, arguments)
    assert result["isError"]
    assert says in result["content"][0]["text"]


async def test_only_api_keys_are_let_in(mcp_daemon: Daemon) -> None:
    for token in ("", await mcp_daemon.login(), "slk_wrong"):
        answer = await mcp_daemon.ask("POST", "/mcp", {}, token=token)
        assert answer.status_code == 403
    answer = await mcp_daemon.ask("GET", "/mcp", token=await key_for(mcp_daemon, *ALL))
    assert answer.status_code == 405


async def test_mcp_is_404_unless_enabled(daemon: Daemon) -> None:
    assert (await daemon.ask("POST", "/mcp", {})).status_code == 404


async def test_hundred_calls_at_once_are_answered(mcp_daemon: Daemon, portal: Portal) -> None:
    await mcp_daemon.sync(portal.account())
    key, links = (
        await key_for(mcp_daemon, "convert"),
        [portal.link(portal.item()) for _ in range(100)],
    )
    shorts = set()

    async def convert(link: str) -> None:
        result = await call(mcp_daemon, key, "convert_links", {"links": [link]})
        shorts.add(result["structuredContent"]["mapping"][link]["shortLink"])

    async with trio.open_nursery() as nursery:
        for link in links:
            nursery.start_soon(convert, link)
    assert len(shorts) == 100


async def test_client_that_vanishes_holds_no_place(mcp_daemon: Daemon) -> None:
    key = await key_for(mcp_daemon, "crews")
    for _ in range(5):
        with trio.move_on_after(0.3):
            await call(mcp_daemon, key, "run_crew", {"crew": "slow", "inputs": {}})

    async def are_stopped() -> bool:
        page = (await mcp_daemon.ask("GET", "/crews/slow/executions", token=key)).json()
        running = [each for each in page["executions"] if each["state"] != "FAILED"]
        for each in running:
            await mcp_daemon.ask("POST", f"/crews/slow/stop/{each['kickoff_id']}", {}, token=key)
        return bool(page["executions"]) and not running

    # A token may hold 128 places. If the vanished clients held theirs, these would be too many.
    await mcp_daemon.until("the executions are stopped", are_stopped)
    async with trio.open_nursery() as nursery:
        for _ in range(126):
            nursery.start_soon(call, mcp_daemon, key, "list_crews", {})


async def test_sigterm_ends_a_waiting_tool_with_the_id(running: Running) -> None:
    with running(mcp={"enabled": True}, crews=[SLOW]) as daemon:
        key = await key_for(daemon, "crews")
        results: list[Json] = []

        async def run() -> None:
            results.append(await call(daemon, key, "run_crew", {"crew": "slow", "inputs": {}}))

        async def has_begun() -> bool:
            page = (await daemon.ask("GET", "/crews/slow/executions", token=key)).json()
            return bool(page["executions"])

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            await daemon.until("the execution has begun", has_begun)
            daemon.program.process.terminate()
        [result] = results
        assert result["structuredContent"]["kickoff_id"]
        assert "goes on" in result["structuredContent"]["note"]


def restarting() -> httpx.Response:
    body = {"error": "the store is being restarted"}
    return httpx.Response(503, json=body, headers={"Retry-After": "1"})


def damaged() -> httpx.Response:
    return httpx.Response(200, content=b"no gzip", headers={"Content-Encoding": "gzip"})


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (restarting, "the store is being restarted (try again in 1 s)"),
        (damaged, "the daemon cannot be reached (DecodingError)"),
    ],
)
async def test_run_crew_whose_state_cannot_be_asked_answers_with_the_id(
    answer: Callable[[], httpx.Response], says: str
) -> None:
    def respond(request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            return httpx.Response(200, json={"kickoff_id": "an-id"})
        return answer()

    transport = httpx.MockTransport(respond)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
        given = {"crew": "slow", "inputs": {}}
        api = ToolApi(http, trio.Event())
        result = await TOOLS["run_crew"].call(api, given, cast(Any, None))
    assert result["kickoff_id"] == "an-id"
    assert says in str(result["note"])
