"""Hands: how many calls are made at once, and what a receiver that hangs leaves of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from daemon.crews.webhooks import actor as webhooks
from daemon.crews.webhooks.hands import (
    AT_ONCE,
    AT_ONCE_TO_A_HOST,
    LONGEST_GAP,
    MAX_SILENT,
    Hands,
)
from daemon.journal.model import Delivery, WebhookTarget

OpenReceiver = Callable[..., Awaitable[Any]]


async def test_a_host_that_hangs_leaves_hands_for_others(
    desk: Any, open_receiver: OpenReceiver, behave: Any
) -> None:
    hanging, other = await open_receiver(), await open_receiver()
    hanging.usual = behave.hang
    for _ in range(10):
        await desk.call(hanging.url(), b"{}")
    await desk.begin()
    await hanging.until(AT_ONCE_TO_A_HOST)
    for _ in range(3):
        await desk.call(other.url(), b"{}")
    desk.nudge()

    await other.until(3)
    await desk.until(lambda found: len(found) == 10)
    assert hanging.most_at_once == len(hanging.received) == AT_ONCE_TO_A_HOST


@pytest.mark.parametrize(("calls", "size"), [(150, 2), (8, 3 * 1024 * 1024)])
async def test_much_that_waits_for_a_host_that_hangs_hides_no_other(
    desk: Any, open_receiver: OpenReceiver, behave: Any, calls: int, size: int
) -> None:
    hanging, other = await open_receiver(), await open_receiver("127.0.0.2")
    hanging.usual = behave.hang
    for _ in range(calls):
        await desk.call(hanging.url(), b"x" * size)
    await desk.begin()
    await hanging.until(AT_ONCE_TO_A_HOST)

    await desk.call(other.url(), b"{}")
    desk.nudge()
    with trio.fail_after(webhooks.LONGEST_SLEEP / 2):  # of the clock that only the test moves
        await other.until(1)
    assert len(hanging.received) == AT_ONCE_TO_A_HOST


async def test_hands_are_limited(desk: Any, open_receiver: OpenReceiver, behave: Any) -> None:
    receivers = [await open_receiver() for _ in range(6)]
    for receiver in receivers:
        receiver.usual = behave.hang
        for _ in range(4):
            await desk.call(receiver.url(), b"{}")
    await desk.begin()
    for receiver in receivers[:4]:
        await receiver.until(4)
    await wait_all_tasks_blocked(0.01)

    assert sum(receiver.at_once for receiver in receivers) == AT_ONCE == 16


async def test_hosts_that_are_silent_leave_hands_for_others_from_then_on(
    desk: Any, open_receiver: OpenReceiver, behave: Any, mock_clock: MockClock
) -> None:
    hanging = [await open_receiver() for _ in range(AT_ONCE // AT_ONCE_TO_A_HOST)]
    for receiver in hanging:
        receiver.usual = behave.hang
        for _ in range(10):
            await desk.call(receiver.url(), b"{}")
    await desk.begin()
    for receiver in hanging:
        await receiver.until(AT_ONCE_TO_A_HOST)
    mock_clock.jump(30)  # all of them are left, and the next of each is tried
    for receiver in hanging:
        await receiver.until(AT_ONCE_TO_A_HOST + 1)

    other = await open_receiver()
    for _ in range(3):
        await desk.call(other.url(), b"{}")
    desk.nudge()
    with trio.fail_after(1):  # of the clock that only the test moves
        await other.until(3)
    assert [len(receiver.received) for receiver in hanging] == [AT_ONCE_TO_A_HOST + 1] * 4


async def test_a_host_that_says_something_again_has_its_hands_back(
    desk: Any, receiver: Any, behave: Any, mock_clock: MockClock
) -> None:
    receiver.behaviours.extend([behave.hang, behave.answer(500)])
    receiver.usual = behave.hang
    await desk.call(receiver.url(), b"{}")
    await desk.begin()
    await receiver.until(1)
    mock_clock.jump(30)
    await desk.until(lambda found: found[0].attempts == 1)
    for _ in range(10):
        await desk.call(receiver.url(), b"{}")
    desk.nudge()

    await receiver.until(2 + AT_ONCE_TO_A_HOST)
    await wait_all_tasks_blocked(0.01)
    assert len(receiver.received) == 2 + AT_ONCE_TO_A_HOST


def call_to(host: str, number: int = 0) -> Delivery:
    """A call, to a target of its own."""
    target = WebhookTarget("task", f"https://{host}/{number}")
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return Delivery(number, "an-id", "a-crew", target, b"{}", 0, now, now)


def taken(hands: Hands, calls: Sequence[Delivery]) -> int:
    """How many of these may be made at once."""
    held = [call for call in calls if hands.take(call)]
    for call in held:
        hands.release(call)
    return len(held)


async def test_so_many_silent_hosts_are_remembered() -> None:
    hands = Hands()
    for number in range(MAX_SILENT + 1):
        hands.heard(call_to(f"h{number}.example"), silent=True)
    first, second = (
        [call_to(f"h{host}.example", number) for number in range(10)] for host in (0, 1)
    )
    assert (taken(hands, first), taken(hands, second)) == (AT_ONCE_TO_A_HOST, 1)


async def test_calls_to_one_address_are_made_one_at_a_time_whatever_they_tell() -> None:
    hands, task = Hands(), call_to("h.example")
    end = replace(task, id=1, target=replace(task.target, kind="crew"))
    assert hands.take(task)
    assert not hands.take(end)
    hands.release(task)
    assert hands.take(end)


async def test_a_silence_goes_on_only_where_calls_were_made(mock_clock: MockClock) -> None:
    hands, call = Hands(), call_to("h.example")
    for _ in range(3):
        hands.heard(call, silent=True)
        mock_clock.jump(LONGEST_GAP)
    hands.heard(call, silent=True)
    assert hands.silent_for(call) == 3 * LONGEST_GAP

    mock_clock.jump(LONGEST_GAP + 1)
    hands.heard(call, silent=True)
    assert hands.silent_for(call) == 0
