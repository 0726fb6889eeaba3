"""Calls that have been due for a day, whoever has answered meanwhile, and over restarts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.crews.webhooks import clock, dispatcher
from smartlinkd.crews.webhooks.clock import JUMP, SteadyClock
from smartlinkd.crews.webhooks.retry import LOST_AFTER
from smartlinkd.journal.actor import CLOCK_SET_WITHIN
from smartlinkd.journal.model import WebhookTarget

HOUR = 3600.0
DAY = timedelta(seconds=LOST_AFTER)


async def until_one_more(receiver: Any, mock_clock: MockClock, calls: int) -> None:
    """Let the time pass that it takes until more than so many calls have been made."""
    with trio.fail_after(300):
        while len(receiver.received) <= calls:
            await wait_all_tasks_blocked(0.01)
            mock_clock.jump(1)
    await wait_all_tasks_blocked(0.01)


async def an_hour(desk: Any, receiver: Any, mock_clock: MockClock, *paths: str) -> None:
    """Queue calls to these, each of an execution of its own. The call that hangs is left."""
    for path in paths:
        await desk.call(receiver.url(path), b"first", b"second")
    desk.nudge()
    await wait_all_tasks_blocked(0.01)
    calls = len(receiver.received)
    mock_clock.jump(HOUR)
    await until_one_more(receiver, mock_clock, calls)


async def owed_for(desk: Any) -> timedelta:
    """How long the oldest call has been due that is still to be made."""
    oldest: timedelta = max(desk.wall() - each.due_since for each in await desk.waiting())
    return oldest


async def test_what_one_is_owed_that_hangs_is_a_day_old_at_most_whoever_answers_beside_it(
    desk: Any, receiver: Any, behave: Any, mock_clock: MockClock
) -> None:
    async def hang_or_be_well(stream: trio.SocketStream) -> None:
        is_well = receiver.received[-1].target == "/well"
        await (behave.answer(200)(stream) if is_well else behave.hang(stream))

    receiver.usual = hang_or_be_well
    await desk.begin()
    answered = list[int]()
    for _ in range(int(LOST_AFTER / HOUR) + 6):
        await an_hour(desk, receiver, mock_clock, "/slow", "/well", "/slow")
        answered.append(sum(each.target == "/well" for each in receiver.received))

    assert answered[0] < answered[8] < answered[16] < answered[-1]
    assert await owed_for(desk) <= DAY + timedelta(hours=2)


async def test_what_a_dead_host_is_owed_is_a_day_old_at_most_over_restarts(
    desk: Any, receiver: Any, behave: Any, mock_clock: MockClock
) -> None:
    receiver.usual = behave.hang
    stop = await desk.begin()
    for hour in range(1, 49):
        await an_hour(desk, receiver, mock_clock, "/a", "/b")
        if hour % 20 == 0:
            stop()
            await desk.over.wait()
            calls = len(receiver.received)
            stop = await desk.begin()
            await until_one_more(receiver, mock_clock, calls)

    assert await owed_for(desk) <= DAY + timedelta(hours=2)


@pytest.mark.parametrize("from_its_start", [True, False])
async def test_a_clock_that_is_weeks_ahead_gives_up_nothing_for_an_hour(
    desk: Any, receiver: Any, behave: Any, mock_clock: MockClock, from_its_start: bool
) -> None:
    """It may be set right, or the machine was asleep and its network is not there yet."""
    receiver.usual = behave.reset
    await desk.call(receiver.url(), b"a", b"b")
    right, ahead = desk.wall, timedelta(weeks=3 * from_its_start)
    desk.wall = lambda: right() + ahead
    await desk.begin()
    await until_one_more(receiver, mock_clock, 0)
    if not from_its_start:
        mock_clock.jump(CLOCK_SET_WITHIN)
        await until_one_more(receiver, mock_clock, 1)
        ahead = timedelta(weeks=3)
    for _ in range(4):
        await until_one_more(receiver, mock_clock, len(receiver.received))
    assert [each.body for each in await desk.waiting()] == [b"a"]

    mock_clock.jump(CLOCK_SET_WITHIN)
    desk.nudge()
    await desk.done()
    assert set(receiver.bodies) == {b"a"}


async def test_one_silence_ends_the_call_alone_that_met_it(
    desk: Any, receiver: Any, behave: Any, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line may break once, and what is behind is taken then."""
    monkeypatch.setattr(dispatcher, "LOST_AFTER", 1.0)
    monkeypatch.setattr(clock, "CLOCK_SET_WITHIN", 0.0)
    receiver.behaviours.append(behave.reset)
    await desk.call(receiver.url(), b"a", b"b", b"c")
    mock_clock.jump(10)
    await desk.begin()
    await desk.done()

    assert receiver.bodies == [b"a", b"b", b"c"]


async def test_calls_that_break_in_the_same_moment_are_no_silence_that_lasts(
    desk: Any, receiver: Any, behave: Any, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A receiver's proxy is restarted, and what is behind is taken then."""
    monkeypatch.setattr(dispatcher, "LOST_AFTER", 1.0)
    monkeypatch.setattr(clock, "CLOCK_SET_WITHIN", 0.0)

    async def break_together(stream: trio.SocketStream) -> None:
        await receiver.until(4)
        await behave.reset(stream)

    receiver.behaviours.extend([break_together] * 4)
    for _ in range(4):
        await desk.call(receiver.url(), b"first", b"second")
    mock_clock.jump(10)
    mock_clock.rate = 1.0  # no two of them are heard of at the very same time
    await desk.begin()
    await desk.done()

    assert receiver.bodies == [b"first"] * 4 + [b"second"] * 4


async def test_one_that_was_too_old_leaves_the_next_all_its_attempts(
    desk: Any, receiver: Any, behave: Any, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock, "CLOCK_SET_WITHIN", 0.0)
    receiver.behaviours.extend([behave.answer(500), behave.answer(500), behave.answer(200)])
    target = WebhookTarget(kind="task", url=receiver.url())
    execution_id = await desk.execution(target)
    await desk.queue(execution_id, target, b"old")
    mock_clock.jump(LOST_AFTER + 1)
    await desk.begin()
    await desk.done()

    await desk.queue(execution_id, target, b"new")
    desk.nudge()
    await desk.until(lambda found: not found or found[0].attempts == 1)
    await wait_all_tasks_blocked(0.01)
    mock_clock.jump(5)
    await desk.done()

    assert receiver.bodies == [b"old", b"new", b"new"]


async def test_a_clock_is_steady_an_hour_after_it_was_set(desk: Any, mock_clock: MockClock) -> None:
    set_by = timedelta(0)
    tried = SteadyClock(lambda: desk.wall() + set_by)
    for step in (0, JUMP + 1, -JUMP - 1):
        set_by += timedelta(seconds=step)
        assert not tried.is_steady()
        mock_clock.jump(CLOCK_SET_WITHIN - 1)
        assert not tried.is_steady()
        mock_clock.jump(1)
        assert tried.is_steady()
    set_by += timedelta(seconds=JUMP)
    assert tried.is_steady()
