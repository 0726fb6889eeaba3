"""The official MCP client as a program: calls from standard input, results on standard output.

The client is a separate process, because it leaves async generators behind. `python -m
tests.e2e.mcp_client URL` uses HTTP; without a URL it starts `smartlinkd mcp`. The key is in
`SMARTLINKD_KEY`. The input is a JSON list of `[tool, arguments]`; `main` documents the output.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
from mcp import ClientSession, stdio_client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client


@asynccontextmanager
async def over_http(url: str) -> AsyncIterator[ClientSession]:
    headers = {"Authorization": f"Bearer {os.environ['SMARTLINKD_KEY']}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60, trust_env=False) as http,
        streamable_http_client(url, http_client=http) as streams,
        ClientSession(streams[0], streams[1]) as session,
    ):
        yield session


@asynccontextmanager
async def over_stdio() -> AsyncIterator[ClientSession]:
    arguments = ["-m", "smartlinkd", "mcp"]
    program = StdioServerParameters(command=sys.executable, args=arguments, env=dict(os.environ))
    async with stdio_client(program) as streams, ClientSession(*streams) as session:
        yield session


async def call_tool(session: ClientSession, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return a tool's result, and the progress that was reported."""
    seen: list[float] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        seen.append(progress)

    result = await session.call_tool(tool, arguments, progress_callback=on_progress)
    return {
        "isError": result.is_error,
        "structuredContent": result.structured_content,
        "progress": seen,
    }


async def main() -> None:
    """Print `{"tools": […], "results": [{"isError", "structuredContent", "progress"}]}`."""
    calls = json.load(sys.stdin)
    async with over_http(sys.argv[1]) if len(sys.argv) > 1 else over_stdio() as session:
        await session.initialize()
        tools = [tool.name for tool in (await session.list_tools()).tools]
        results = [await call_tool(session, name, arguments) for name, arguments in calls]
    print(json.dumps({"tools": tools, "results": results}))


if __name__ == "__main__":
    anyio.run(main)
