"""`smartlinkd mcp`: the tools for language models over standard input and output."""

from __future__ import annotations

import argparse
from functools import partial

import trio

from smartlinkd.client import ClientError
from smartlinkd.client.connection import checked_url
from smartlinkd.commands.codes import GOOD
from smartlinkd.commands.server import require_server


def main(chosen: argparse.Namespace) -> int:
    """Serve until standard input is closed. Raises `ClientError`."""
    server = require_server(chosen)
    if server.key is None:
        raise ClientError(f"there is no key for {server.url}; run `smartlinkd login` first")
    try:
        from smartlinkd.mcp.over_stdio import serve_stdio  # noqa: PLC0415 - an extra
    except ImportError:
        raise ClientError("MCP needs a package: pip install 'smartlinkd[mcp]'") from None
    url = checked_url(server.url, allow_http=server.allow_http)
    trio.run(partial(serve_stdio, url, server.key))
    return GOOD
