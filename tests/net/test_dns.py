"""Names: who looks one up holds up others who do, and nobody else."""

from __future__ import annotations

import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from ipaddress import ip_network
from typing import Any

import pytest
import trio
import trio.testing

from smartlinkd.net.client import HttpClient, NoAnswer
from smartlinkd.net.dns import MAX_LOOKUPS, install_resolver
from smartlinkd.net.egress import Unanswered, open_sender

HANG = 10.0
"""Real seconds; whatever takes longer hangs."""
URL = "http://localhost:1/"
"""Nobody is there."""


@pytest.fixture
async def no_thread_free() -> AsyncIterator[None]:
    """Of those that everybody shares."""
    shared = trio.to_thread.current_default_thread_limiter()
    shared.total_tokens = 1
    async with shared:
        yield


async def look_up() -> None:
    await trio.socket.getaddrinfo("localhost", 1)


async def by_client() -> None:
    async with HttpClient() as client:
        with pytest.raises(NoAnswer, match="ConnectError"):
            await client.request("GET", URL, deadline=HANG, max_body=1)


async def by_webhook() -> None:
    loopback = [ip_network("127.0.0.0/8"), ip_network("::1")]
    async with open_sender(loopback, max_connections=1) as sender:
        outcome = await sender.post(URL, {}, b"")
    assert isinstance(outcome, Unanswered)
    assert "cannot be connected to" in outcome.why


@pytest.mark.parametrize("way", [look_up, by_client, by_webhook])
async def test_look_up_needs_no_shared_thread(
    no_thread_free: None, way: Callable[[], Awaitable[None]]
) -> None:
    install_resolver()
    with trio.fail_after(HANG):
        await way()


@pytest.mark.parametrize(
    "wanted",
    [
        {"family": socket.AF_INET6, "flags": socket.AI_V4MAPPED},
        {"type": socket.SOCK_DGRAM},
        {"proto": socket.IPPROTO_UDP},
        {"flags": socket.AI_CANONNAME},
    ],
)
async def test_look_up_finds_what_the_system_finds(wanted: dict[str, int]) -> None:
    install_resolver()
    found = await trio.socket.getaddrinfo("localhost", 80, **wanted)
    assert found == socket.getaddrinfo("localhost", 80, **wanted)


async def test_abandoned_look_ups_delay_look_ups_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there, speak = threading.Semaphore(0), threading.Event()
    really = socket.getaddrinfo

    def silent(host: str | bytes | None, *more: Any, **options: Any) -> Any:
        if host == b"localhost":  # trio looks by itself whether it is a number, and asks with text
            there.release()
            speak.wait()
        return really(host, *more, **options)

    monkeypatch.setattr(socket, "getaddrinfo", silent)
    install_resolver()
    async with trio.open_nursery() as asking:
        for _ in range(MAX_LOOKUPS):
            asking.start_soon(look_up)
        for _ in range(MAX_LOOKUPS):
            assert await trio.to_thread.run_sync(partial(there.acquire, timeout=HANG))
        asking.cancel_scope.cancel()
    with trio.fail_after(HANG):
        async with trio.open_nursery() as asking:
            asking.start_soon(look_up)
            await trio.testing.wait_all_tasks_blocked()
            assert not there.acquire(blocking=False)
            speak.set()
