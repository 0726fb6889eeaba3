"""Hands: how many calls are made at once, and what a receiver that hangs leaves of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.crews.webhooks import dispatcher as webhooks
from smartlinkd.crews.webhooks.hands import (
    AT_ONCE,
    AT_ONCE_TO_A_HOST,
    FOR_OTHERS,
    LONGEST_GAP,
    MAX_REMEMBERED,
    SLOW_AFTER,
    Hands,
)
from smartlinkd.journal.model import Delivery, WebhookTarget

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
    receivers = [await open_receiver() for _ in range(8)]
    for receiver in receivers:
        receiver.usual = behave.hang
        for _ in range(4):
            await desk.call(receiver.url(), b"{}")
    await desk.begin()
    for receiver in receivers[:7]:
        await receiver.until(1)
    await wait_all_tasks_blocked(0.01)

    assert [receiver.at_once for receiver in receivers] == [4, 4, 4, 1, 1, 1, 1, 0]
    assert sum(receiver.at_once for receiver in receivers) == AT_ONCE == 16


async def test_hosts_that_are_silent_leave_hands_for_others_from_then_on(
    desk: Any, open_receiver: OpenReceiver, behave: Any, mock_clock: MockClock
) -> None:
    full = (AT_ONCE - FOR_OTHERS) // AT_ONCE_TO_A_HOST
    had = [AT_ONCE_TO_A_HOST] * full + [1] * FOR_OTHERS
    hanging = [await open_receiver() for _ in had]
    for receiver in hanging:
        receiver.usual = behave.hang
        for _ in range(10):
            await desk.call(receiver.url(), b"{}")
    await desk.begin()
    for receiver, count in zip(hanging, had, strict=True):
        await receiver.until(count)
    mock_clock.jump(30)  # all of them are left, and the next of each is tried
    for receiver, count in zip(hanging, had, strict=True):
        await receiver.until(count + 1)

    other = await open_receiver()
    for _ in range(3):
        await desk.call(other.url(), b"{}")
    desk.nudge()
    with trio.fail_after(1):  # of the clock that only the test moves
        await other.until(3)
    assert [len(receiver.received) for receiver in hanging] == [count + 1 for count in had]


async def test_however_many_a_few_hosts_are_owed_others_have_a_hand_at_once(
    desk: Any, open_receiver: OpenReceiver, behave: Any
) -> None:
    hanging = [await open_receiver() for _ in range(4)]
    for receiver in hanging:
        receiver.usual = behave.hang
        for _ in range(10):
            await desk.call(receiver.url(), b"{}")
    await desk.begin()
    for receiver, count in zip(hanging, [4, 4, 4, 1], strict=True):
        await receiver.until(count)

    other = await open_receiver()
    for _ in range(3):
        await desk.call(other.url(), b"{}")
    desk.nudge()
    with trio.fail_after(1):  # of the clock that only the test moves
        await other.until(3)
    assert [len(receiver.received) for receiver in hanging] == [4, 4, 4, 1]


async def test_a_host_that_answers_late_has_one_hand_until_it_answers_soon(
    desk: Any, receiver: Any, behave: Any, mock_clock: MockClock
) -> None:
    async def late(stream: trio.SocketStream) -> None:
        await trio.sleep(SLOW_AFTER + 1)
        await behave.answer(200)(stream)

    receiver.behaviours.extend([late, late, behave.answer(500)])
    receiver.usual = behave.hang
    await desk.call(receiver.url(), b"{}")
    await desk.begin()
    await receiver.until(1)
    mock_clock.jump(SLOW_AFTER + 1)
    await desk.done()
    for _ in range(10):
        await desk.call(receiver.url(), b"{}")
    desk.nudge()
    await receiver.until(2)
    await wait_all_tasks_blocked(0.01)
    assert receiver.at_once == 1

    mock_clock.jump(SLOW_AFTER + 1)
    await receiver.until(3 + AT_ONCE_TO_A_HOST)


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


@pytest.mark.parametrize("silent", [True, False])
async def test_so_many_hosts_are_remembered(silent: bool) -> None:
    hands = Hands()
    for number in range(MAX_REMEMBERED + 1):
        call = call_to(f"h{number}.example")
        hands.heard(call, silent=silent, after=SLOW_AFTER + 1)
    first, second = (
        [call_to(f"h{host}.example", number) for number in range(10)] for host in (0, 1)
    )
    assert (taken(hands, first), taken(hands, second)) == (AT_ONCE_TO_A_HOST, 1)


async def test_calls_to_one_address_are_made_one_at_a_time_whatever_they_tell() -> None:
    hands, task = Hands(), call_to("h.example")
    end = replace(task, id=1, target=replace(task.target, kind="crew"))
    assert hands.take(task)
    assert not hands.take(end)
    assert hands.take(replace(task, id=2, target=replace(task.target, kind="human_input")))
    hands.release(task)
    assert hands.take(end)


async def test_a_silence_goes_on_only_where_calls_were_made(mock_clock: MockClock) -> None:
    hands, call = Hands(), call_to("h.example")
    for _ in range(3):
        hands.heard(call, silent=True, after=0)
        mock_clock.jump(LONGEST_GAP)
    hands.heard(call, silent=True, after=0)
    assert hands.silent_for(call) == 3 * LONGEST_GAP

    mock_clock.jump(LONGEST_GAP + 1)
    hands.heard(call, silent=True, after=0)
    assert hands.silent_for(call) == 0
