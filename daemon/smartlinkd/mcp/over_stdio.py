"""MCP over standard input and output, as a client of a daemon."""

from __future__ import annotations

import httpx
import trio
from mcp.server.stdio import stdio_server
from pydantic import SecretStr

from smartlinkd.mcp.tools import CALL_S, ToolApi, make_server


async def serve_stdio(url: str, key: SecretStr) -> None:
    """Serve one client on standard input and output until it closes them."""
    headers = {"Authorization": f"Bearer {key.get_secret_value()}"}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=CALL_S) as http:
        api = ToolApi(http, trio.Event())
        server = make_server(lambda _: api)
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())
