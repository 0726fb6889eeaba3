"""Accepting connections without a free descriptor. Sockets and shortage are real."""

from __future__ import annotations

import errno
import os
import socket
from functools import partial
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from smartlinkd.admin.control_socket import SOCKET_NAME, ControlSocket
from smartlinkd.http_server import GuardedQuart, ServedApp, bind, serve
from smartlinkd.http_server.server import RETRY_INTERVAL_S, PatientListener
from tests.shortage import Shortage

PATIENCE = 5.0  # seconds; a longer wait is a hang
WAITS = "no connection can be accepted, which is tried again and again: [Errno 24] Too many open"


async def wait_for_retries(caplog: pytest.LogCaptureFixture) -> None:
    """Wait until the listener has logged that it waits, and for some more attempts."""
    with trio.fail_after(PATIENCE):
        while not caplog.messages:  # noqa: ASYNC110 - a log has no event
            await trio.sleep(RETRY_INTERVAL_S / 10)
    await trio.sleep(3 * RETRY_INTERVAL_S)


def is_logged_once(caplog: pytest.LogCaptureFixture) -> bool:
    (told,) = caplog.messages
    return told.startswith(WAITS)


@pytest.mark.parametrize("kind", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM])
async def test_accept_waits_for_resources_and_raises_other_errors(
    kind: int, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    faults = [OSError(kind, os.strerror(kind)) for _ in range(50)] + [OSError(errno.EBADF, "shut")]

    async def failing(_: trio.SocketListener) -> trio.SocketStream:
        raise faults.pop(0)

    (listening,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    monkeypatch.setattr(trio.SocketListener, "accept", failing)
    async with PatientListener(listening) as listener:
        with pytest.raises(OSError, match="shut"):
            await listener.accept()
    assert trio.current_time() == pytest.approx(50 * RETRY_INTERVAL_S)
    assert listening.socket.fileno() < 0


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
    assert is_logged_once(caplog)


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
    assert is_logged_once(caplog)
