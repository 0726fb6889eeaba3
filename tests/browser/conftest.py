"""A browser's side of a websocket, played by hand; a small web site; and a real Chromium."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import memory_stream_pair
from trio_websocket import WebSocketConnection, wrap_server_stream

from daemon.browser.cdp import Connection, connect, converse
from daemon.browser.chromium import Chromium, LaunchSettings, launch
from daemon.browser.page import BrowserContext, Page


class Peer:
    """The other end of a `Connection`: takes commands, says anything."""

    def __init__(self) -> None:
        self.websocket: WebSocketConnection
        self.stream: trio.abc.Stream

    async def accept(self, stream: trio.abc.Stream, nursery: trio.Nursery) -> None:
        self.stream = stream
        request = await wrap_server_stream(nursery, stream)
        self.websocket = await request.accept()

    async def take(self) -> dict[str, Any]:
        """The next command."""
        taken: dict[str, Any] = json.loads(await self.websocket.get_message())
        return taken

    async def say(self, message: object) -> None:
        """Send a message; a text goes as it is."""
        text = message if isinstance(message, str | bytes) else json.dumps(message)
        await self.websocket.send_message(text)

    async def answer(self, result: object) -> dict[str, Any]:
        """Take the next command and answer it."""
        command = await self.take()
        await self.say({"id": command["id"], "result": result})
        return command


@pytest.fixture
async def peer(nursery: trio.Nursery) -> Peer:
    return Peer()


@pytest.fixture
async def conversation(peer: Peer, nursery: trio.Nursery) -> AsyncIterator[Connection]:
    """A connection to `peer`, without a socket."""
    ours, theirs = memory_stream_pair()
    nursery.start_soon(peer.accept, theirs, nursery)
    async with converse(ours, "browser.test", "/devtools") as connection:
        yield connection
    nursery.cancel_scope.cancel()
