"""Accepting connections without a free descriptor. Sockets and shortage are real."""

from __future__ import annotations

import socket
from functools import partial
from pathlib import Path

import pytest
import trio

from smartlinkd.admin.control_socket import SOCKET_NAME, ControlSocket
from smartlinkd.http_server import GuardedQuart, ServedApp, bind, serve
from tests.shortage import Shortage

PATIENCE = 5.0  # seconds; a longer wait is a hang
SOME_TRIES_S = 0.35  # trio tries ten times a second


async def wait_for_retries(caplog: pytest.LogCaptureFixture) -> None:
    """Wait until it is logged that nothing can be accepted, and for some more attempts."""
    with trio.fail_after(PATIENCE):
        while "accept returned EMFILE" not in caplog.text:  # noqa: ASYNC110 - a log has no event
            await trio.sleep(0.01)
    await trio.sleep(SOME_TRIES_S)


async def test_control_socket_without_a_free_descriptor_waits(
    shortage: Shortage, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    with trio.fail_after(PATIENCE), socket.socket(socket.AF_UNIX) as caller:
        async with trio.open_nursery() as nursery:
            await nursery.start(ControlSocket(tmp_path, {}).run)
            with shortage():
                caller.connect(str(tmp_path / SOCKET_NAME))
                caller.sendall(b"{}\n")
                caller.settimeout(PATIENCE)
                await wait_for_retries(caplog)
            assert b"is not one of" in await trio.to_thread.run_sync(caller.recv, 4096)
            nursery.cancel_scope.cancel()


async def test_http_server_without_a_free_descriptor_waits_and_logs_once(
    shortage: Shortage, caplog: pytest.LogCaptureFixture
) -> None:
    (door,) = bind("127.0.0.1", 0)
    with trio.fail_after(PATIENCE), door, socket.socket() as caller:
        stop = trio.Event()
        async with trio.open_nursery() as nursery:
            app = ServedApp(GuardedQuart())
            await nursery.start(partial(serve, app, [door], grace=1.0, stop=stop))
            with shortage():
                caller.connect(door.getsockname())
                caller.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
                caller.settimeout(PATIENCE)
                await wait_for_retries(caplog)
            assert b" 404 " in await trio.to_thread.run_sync(caller.recv, 4096)
            stop.set()
    assert len(caplog.messages) == 1
