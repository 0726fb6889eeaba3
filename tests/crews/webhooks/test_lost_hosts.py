"""Hosts that have said nothing for a day: what they are owed is given up, and that is told."""

from __future__ import annotations

import re
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
import trio
import trio.testing

from smartlinkd.crews.webhooks import clock, dispatcher
from smartlinkd.crews.webhooks.hands import LONGEST_GAP
from smartlinkd.crews.webhooks.retry import LOST_AFTER
from smartlinkd.errors import Unavailable
from smartlinkd.journal import deliveries
from smartlinkd.logs.context import ContextFilter
from smartlinkd.logs.formats import context_fields
from smartlinkd.net import egress
from tests.fakes.scrape import observed


async def test_a_host_that_has_said_nothing_for_a_day_is_owed_nothing_of_before(
    desk: Any,
    receiver: Any,
    behave: Any,
    mock_clock: trio.testing.MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It has one hand, which may never come to all that waits for it."""
    receiver.usual = behave.reset
    for number in range(3):
        await desk.call(receiver.url(f"/{number}"), b"a", b"b")
    await desk.begin()
    tries = 0
    while tries * LONGEST_GAP <= LOST_AFTER:
        tries += 1
        await all_tried(desk, tries)
        await trio.testing.wait_all_tasks_blocked(0.01)
        mock_clock.jump(LONGEST_GAP)
    await desk.done()
    await desk.call(receiver.url("/new"), b"c")
    desk.nudge()
    await desk.done()
    desk.stop()
    await desk.over.wait()  # it may be asking the journal for more to give up, and would go on

    assert receiver.bodies == [b"a"] * (3 * tries + 1) + [b"c"]
    assert re.findall(r"gave up (\d) webhook calls that http://127\.0", caplog.text) == list("122")


async def test_that_nothing_was_said_while_nothing_was_sent_is_no_silence(
    desk: Any,
    receiver: Any,
    behave: Any,
    mock_clock: trio.testing.MockClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    receiver.usual = behave.reset
    with monkeypatch.context() as patched:
        patched.setattr(dispatcher, "MAX_ATTEMPTS", 1)
        await desk.call(receiver.url(), b"on Saturday")
        await desk.begin()
        await desk.done()
    await trio.testing.wait_all_tasks_blocked(0.01)
    mock_clock.jump(4 * 24 * 3600)

    await desk.call(receiver.url(), b"on Wednesday")
    desk.nudge()

    (put_off,) = await desk.until(lambda found: not found or found[0].attempts == 1)
    assert put_off.body == b"on Wednesday"


async def all_tried(desk: Any, count: int) -> None:
    """Wait until all that wait, but for those behind others, were tried so often."""
    await desk.until(lambda found: all(each.attempts == count for each in found))


@pytest.fixture
async def lost(  # noqa: PLR0917 - fixtures
    desk: Any,
    receiver: Any,
    behave: Any,
    mock_clock: trio.testing.MockClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> list[str]:
    """Two executions with three calls each, to a host that will be taken for gone when the call at
    hand is left: the first one's."""
    monkeypatch.setattr(dispatcher, "LOST_AFTER", 1.0)
    monkeypatch.setattr(dispatcher, "SILENT_AFTER", 1.0)
    monkeypatch.setattr(clock, "CLOCK_SET_WITHIN", egress.DEADLINE + 1)  # from the first silence
    caplog.handler.addFilter(ContextFilter())
    receiver.usual = behave.hang
    executions = [await desk.call(receiver.url(), *[b"%d" % number] * 3) for number in range(2)]
    await desk.begin()
    await receiver.until(2)
    await trio.testing.wait_all_tasks_blocked(0.01)
    mock_clock.jump(egress.DEADLINE)
    await all_tried(desk, 1)
    await trio.testing.wait_all_tasks_blocked(0.01)
    mock_clock.jump(10)
    await receiver.until(3)
    await trio.testing.wait_all_tasks_blocked(0.01)
    return executions if receiver.bodies[2] == b"0" else executions[::-1]


def told(caplog: pytest.LogCaptureFixture) -> Counter[str]:
    """Of how many calls that were given up untried the log tells, by their execution."""
    found = Counter[str]()
    for record in caplog.records:
        if "was owed for a day: it says nothing" in record.getMessage():
            about = context_fields(record)
            assert (about["event"], about["crew"]) == (["webhook_given_up"], ["deal-post"])
            (execution_id,) = about["kickoff_id"]
            found[execution_id] += record.args[0]  # type: ignore[index, operator]
    return found


async def test_what_is_given_up_untried_is_told_of_each_execution_and_counted(
    desk: Any, lost: list[str], mock_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    mock_clock.jump(egress.DEADLINE)
    await desk.done()
    await trio.testing.wait_all_tasks_blocked(0.01)

    assert told(caplog) == {lost[0]: 2, lost[1]: 3}
    took = observed(desk.timings.attempt)
    assert {outcome: count for outcome, (count, _) in took.items()} == {"later": 2, "given up": 6}
    assert took["given up"][1] == pytest.approx(egress.DEADLINE)


async def test_by_a_clock_that_was_set_nothing_is_given_up_untried(
    desk: Any,
    receiver: Any,
    lost: list[str],
    mock_clock: trio.testing.MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nor after a suspend: what is an hour old would be days old."""
    desk.ahead = timedelta(days=3)
    mock_clock.jump(egress.DEADLINE)
    # The hand is free again when all is given up that is.
    await desk.until(lambda found: not found or len(receiver.received) == 4)

    assert told(caplog) == {}
    attempts = {each.execution_id: each.attempts for each in await desk.waiting()}
    assert attempts == {lost[0]: 0, lost[1]: 1}  # the next one of the first, and the other's


async def test_what_was_given_up_until_the_journal_could_not_be_used_is_told(
    desk: Any,
    lost: list[str],
    mock_clock: trio.testing.MockClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(deliveries, "MAX_AT_ONCE", 2)
    looks, refused = iter([desk.journal.give_up_deliveries]), trio.Event()

    async def once(*arguments: Any, **options: Any) -> Any:
        for look in looks:
            return await look(*arguments, **options)
        refused.set()
        raise Unavailable("the journal is being restarted", retry_after=1)

    monkeypatch.setattr(desk.journal, "give_up_deliveries", once)
    mock_clock.jump(egress.DEADLINE)
    await refused.wait()

    assert told(caplog) == {lost[0]: 2}
    assert [each.execution_id for each in await desk.waiting()] == [lost[1]]


async def test_a_stop_while_they_are_given_up_leaves_none_untold(
    desk: Any,
    lost: list[str],
    mock_clock: trio.testing.MockClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The journal does what it has begun, also for whom nobody waits any more."""
    give_up, begun, goes_on = desk.journal.give_up_deliveries, trio.Event(), trio.Event()

    async def slowly(*arguments: Any, **options: Any) -> Any:
        begun.set()
        await goes_on.wait()
        return await give_up(*arguments, **options)

    monkeypatch.setattr(desk.journal, "give_up_deliveries", slowly)
    mock_clock.jump(egress.DEADLINE)
    await begun.wait()
    desk.stop()
    goes_on.set()
    await desk.over.wait()

    assert await desk.waiting() == []
    assert told(caplog) == {lost[0]: 2, lost[1]: 3}


async def test_what_is_given_up_is_told_before_it_is_so(
    desk: Any,
    receiver: Any,
    behave: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    receiver.usual = behave.answer(410)
    asked = trio.Event()

    async def never(*_: Any) -> None:
        asked.set()
        await trio.sleep_forever()

    monkeypatch.setattr(desk.journal, "done", never)
    await desk.call(receiver.url(), b"a")
    await desk.begin()
    await asked.wait()
    assert "gave up the task webhook call" in caplog.text
