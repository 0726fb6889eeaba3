"""Receivers on loopback, which do as they are told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

from tests.fakes.internet import Receiver


@pytest.fixture
def open_receiver(nursery: trio.Nursery) -> Callable[..., Awaitable[Receiver]]:
    async def begin(host: str = "127.0.0.1", port: int = 0) -> Receiver:
        (listener,) = await trio.open_tcp_listeners(port, host=host)
        receiver = Receiver(host, listener.socket.getsockname()[1])
        nursery.start_soon(trio.serve_listeners, receiver.serve, [listener])
        return receiver

    return begin


@pytest.fixture
async def receiver(open_receiver: Callable[..., Awaitable[Receiver]]) -> Receiver:
    return await open_receiver()
