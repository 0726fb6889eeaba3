"""Tests that hang, each in another way, and some that only look like it. They are no part of the
test run: `test_deadline.py` runs them.

Each name says what becomes of it: `test_hangs_…` is to fail, `test_passes_…` to pass.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
import trio
from trio.testing import MockClock

from tests.hygiene import deadline

deadline.LOOK_EVERY = 0.1
deadline.SPARE = 0.3
LOOKS = 4 * deadline.LOOK_EVERY
"""Seconds in which a test that could not go on would have been ended."""

soon = pytest.mark.deadline(1.0, reason="it never ends")


async def wait_for(never: trio.Event) -> None:
    await never.wait()


async def test_hangs_for_nothing() -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait_for, trio.Event(), name="the one that waits")
        nursery.start_soon(trio.sleep_forever)


async def test_hangs_on_an_autojump_clock(autojump_clock: MockClock) -> None:
    await wait_for(trio.Event())


async def test_hangs_on_a_mock_clock(mock_clock: MockClock) -> None:
    await trio.sleep(1)


@soon
async def test_hangs_on_a_clock_that_jumps_for_ever(autojump_clock: MockClock) -> None:
    while True:  # noqa: ASYNC110
        await trio.sleep(5)


@soon
async def test_hangs_on_a_socket() -> None:
    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        await listener.accept()


@soon
async def test_hangs_behind_a_shield() -> None:
    with trio.CancelScope(shield=True):
        await trio.sleep(1000)


@soon
async def test_hangs_in_trios_thread() -> None:
    time.sleep(1000)  # noqa: ASYNC251


@pytest.fixture
async def never_over() -> AsyncIterator[None]:
    yield
    await wait_for(trio.Event())


async def test_hangs_in_a_fixture_of_trios(never_over: None) -> None:
    pass


@soon
def test_hangs_without_trio() -> None:
    subprocess.run(["sleep", "1005"], check=True)


@pytest.fixture
def never_made() -> None:
    time.sleep(1000)


@soon
def test_hangs_in_a_fixture(never_made: None) -> None:
    pass


@soon
def test_hangs_in_a_loop() -> None:
    while True:
        pass


async def test_passes_with_a_thread(autojump_clock: MockClock) -> None:
    await trio.to_thread.run_sync(time.sleep, LOOKS)


async def test_passes_with_a_process() -> None:
    await trio.run_process(["sleep", str(LOOKS)])


async def test_passes_with_a_deadline() -> None:
    await trio.sleep(LOOKS)


async def test_passes_with_messages() -> None:
    """Two tasks that are never both asleep, and never have a deadline."""
    until = time.monotonic() + LOOKS
    send, receive = trio.open_memory_channel[float](0)

    async def talk() -> None:
        async with send:
            while (now := time.monotonic()) < until:
                await send.send(now)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(talk)
        async for _ in receive:
            pass


@pytest.mark.deadline(1000.0, reason="it could need that long")
def test_passes_without_trio() -> None:
    time.sleep(LOOKS)
    assert signal.getitimer(signal.ITIMER_REAL) != (0, 0)


@soon
async def test_hangs_and_will_not_be_cancelled() -> None:
    """The last one: what is torn out of trio makes garbage."""
    while True:
        with suppress(trio.Cancelled):
            await trio.sleep(1000)
