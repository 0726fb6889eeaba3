"""MCP, with the official client, over HTTP and stdio, at a daemon with the sandbox."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio
from mcp import ClientSession, stdio_client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, TextContent

from tests.contract.keys import key_for
from tests.e2e.conftest import PATIENCE, ROOT, Daemon, Portal, Running

POST = {
    "name": "deal-post",
    "runner": "command",
    "command": [sys.executable, "-m", "smartlinkd.crews.deal_post"],
    "tools": ["convert_links"],
    "inputs": [{"name": "links"}],
}
SLOW = {
    "name": "slow",
    "runner": "command",
    "command": [sys.executable, "-c", "import time; time.sleep(300)"],
}
ALL = ("convert", "status", "history", "crews")


@pytest.fixture(scope="module")
def serving(running: Running) -> Iterator[Daemon]:
    """A daemon with MCP and two crews."""
    with running(mcp={"enabled": True}, crews=[POST, SLOW]) as daemon:
        daemon.wait_for_browser()
        yield daemon


@asynccontextmanager
async def over_http(daemon: Daemon, key: str) -> AsyncIterator[ClientSession]:
    headers = {"Authorization": f"Bearer {key}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=PATIENCE, trust_env=False) as http,
        streamable_http_client(f"{daemon.url}/mcp", http_client=http) as streams,
        ClientSession(streams[0], streams[1]) as session,
    ):
        await session.initialize()
        yield session


@asynccontextmanager
async def over_stdio(daemon: Daemon, key: str, folder: Path) -> AsyncIterator[ClientSession]:
    program = StdioServerParameters(
        command=sys.executable,
        args=["-m", "smartlinkd", "mcp"],
        cwd=ROOT,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "SMARTLINKD_URL": daemon.url,
            "SMARTLINKD_KEY": key,
        },
    )
    async with stdio_client(program) as streams, ClientSession(*streams) as session:
        await session.initialize()
        yield session


def said(result: CallToolResult) -> str:
    [content] = result.content
    assert isinstance(content, TextContent)
    return content.text


async def use_tools(session: ClientSession, portal: Portal) -> None:
    """Convert a link, and run a crew with its progress."""
    link = portal.link(portal.item())
    made = await session.call_tool("convert_links", {"links": [link], "sub_ids": ["ai"]})
    assert not made.is_error
    short = made.structured_content["mapping"][link]["shortLink"]
    assert json.loads(said(made)) == made.structured_content
    seen: list[float] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        seen.append(progress)

    ran = await session.call_tool(
        "run_crew",
        {"crew": "deal-post", "inputs": {"links": link}},
        progress_callback=on_progress,
    )
    assert ran.structured_content["state"] == "SUCCESS", said(ran)
    assert seen[-1] == 3
    found = await session.call_tool("history", {"q": short.rpartition("/")[2]})
    assert [each["link"] for each in found.structured_content["entries"]] == [link]


async def test_tools_work_over_http(serving: Daemon, portal: Portal) -> None:
    await serving.sync(portal.account())
    async with over_http(serving, await key_for(serving, *ALL)) as session:
        await use_tools(session, portal)


async def test_tools_work_over_stdio(serving: Daemon, portal: Portal, tmp_path: Path) -> None:
    await serving.sync(portal.account())
    async with over_stdio(serving, await key_for(serving, *ALL), tmp_path) as session:
        await use_tools(session, portal)


async def test_key_sees_and_uses_the_tools_of_its_scopes_alone(serving: Daemon) -> None:
    async with over_http(serving, await key_for(serving, "status")) as session:
        assert [tool.name for tool in (await session.list_tools()).tools] == ["account_status"]
        refused = await session.call_tool("list_crews", {})
        assert refused.is_error
        assert "does not have the scope crews" in said(refused)


@pytest.mark.parametrize(
    ("tool", "arguments", "says"),
    [
        ("convert_links", {"links": []}, "links: has too few items"),
        ("convert_links", {"link": "x"}, "links"),
        ("run_crew", {"crew": "nobody", "inputs": {}}, "no crew of that name"),
        ("run_crew", {"crew": "deal-post", "inputs": {}}, "links"),
        ("nothing", {}, "there is no such tool"),
    ],
)
async def test_wrong_call_is_an_error_with_the_remedy(
    serving: Daemon, tool: str, arguments: dict[str, Any], says: str
) -> None:
    async with over_http(serving, await key_for(serving, *ALL)) as session:
        result = await session.call_tool(tool, arguments)
        assert result.is_error
        assert says in said(result)


async def test_only_api_keys_are_let_in(serving: Daemon) -> None:
    for token in ("", await serving.login(), "slk_wrong"):
        answer = await serving.ask("POST", "/mcp", {}, token=token)
        assert answer.status_code == 403
    answer = await serving.ask("GET", "/mcp", token=await key_for(serving, *ALL))
    assert answer.status_code == 405


async def test_without_the_setting_there_is_no_mcp(daemon: Daemon) -> None:
    assert (await daemon.ask("POST", "/mcp", {})).status_code == 404


async def test_hundred_calls_at_once_are_answered(serving: Daemon, portal: Portal) -> None:
    await serving.sync(portal.account())
    key, links = await key_for(serving, "convert"), [portal.link(portal.item()) for _ in range(100)]
    shorts = set()

    async def convert(number: int, link: str) -> None:
        call = {"name": "convert_links", "arguments": {"links": [link]}}
        body = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": call}
        accept = {"Accept": "application/json, text/event-stream"}
        answer = await serving.ask("POST", "/mcp", body, token=key, headers=accept)
        data = answer.text.partition("data: ")[2]
        mapping = json.loads(data)["result"]["structuredContent"]["mapping"]
        shorts.add(mapping[link]["shortLink"])

    async with trio.open_nursery() as nursery:
        for number, link in enumerate(links):
            nursery.start_soon(convert, number, link)
    assert len(shorts) == 100


async def test_client_that_vanishes_leaves_nothing(serving: Daemon) -> None:
    key = await key_for(serving, "crews")
    before = await serving.metrics()
    call = {"name": "run_crew", "arguments": {"crew": "slow", "inputs": {}}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    headers = {"Accept": "application/json, text/event-stream"}
    for _ in range(5):
        with trio.move_on_after(0.3):
            await serving.ask("POST", "/mcp", body, token=key, headers=headers)

    async def stopped() -> bool:
        page = (await serving.ask("GET", "/crews/slow/executions", token=key)).json()
        for each in page["executions"]:
            if each["state"] in ("PENDING", "RUNNING"):
                await serving.ask("POST", f"/crews/slow/stop/{each['kickoff_id']}", {}, token=key)
                return False
        return bool(page["executions"])

    await serving.until("the executions are stopped", stopped)
    tasks = "smartlinkd_tasks"
    assert (await serving.metrics()).get(tasks, 0) <= before.get(tasks, 0) + 1


async def test_sigterm_ends_a_waiting_tool_with_the_id(running: Running) -> None:
    with running(mcp={"enabled": True}, crews=[SLOW], server={"grace": 10}) as daemon:
        key = await key_for(daemon, "crews")
        async with over_http(daemon, key) as session:
            answers: list[CallToolResult] = []

            async def run() -> None:
                answers.append(await session.call_tool("run_crew", {"crew": "slow", "inputs": {}}))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(run)

                async def begun() -> bool:
                    page = (await daemon.ask("GET", "/crews/slow/executions", token=key)).json()
                    return bool(page["executions"])

                await daemon.until("the execution has begun", begun)
                daemon.program.process.terminate()
        [answer] = answers
        assert answer.structured_content["kickoff_id"]
        assert "goes on" in answer.structured_content["note"]
