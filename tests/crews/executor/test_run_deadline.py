"""Deadlines: the worker's own, the human's, and how the one stands still while the other runs.

The clock is the test's: it stands still until it is told to jump, while workers take what time
they take.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.crews import execution
from smartlinkd.crews.protocol import Conversation, FromWorker, ProtocolFault, Result
from smartlinkd.crews.worker import Worker, start_worker
from smartlinkd.errors import Invalid
from smartlinkd.store.model import ExecutionState, Status, StoreLimits, WebhookTarget

if TYPE_CHECKING:
    from tests.crews.executor.conftest import House, MakeCrew, OpenHouse

BEGINS = ("started", "task a", "call gate", "hear")
ASKS = ("ask a", "hear")
ENDS = ("done a", "result ok")


@pytest.fixture
async def timed(mock_clock: MockClock, open_house: OpenHouse, crew: MakeCrew) -> House:
    """Executions may run for 100 s, wait for a human for 1000 s, and have 50 s to end."""
    return await open_house(crew(deadline=100.0, human_deadline=1000.0, grace=50.0))


async def test_one_that_runs_too_long(mock_clock: MockClock, timed: House) -> None:
    kickoff_id = await timed.kickoff("started", "task a", "call gate", "hear", "result ok")
    await timed.gate.reaches(1)
    mock_clock.jump(99)
    await wait_all_tasks_blocked()
    assert (await timed.look(kickoff_id)).state is ExecutionState.RUNNING
    mock_clock.jump(2)
    end = await timed.end_of(kickoff_id)
    assert (end.state, end.status) == (ExecutionState.FAILED, Status.TIMED_OUT)
    assert end.error == (
        "it ran longer than the 100 s that its crew may (deadline); the worker ended without a "
        "signal"
    )


@pytest.mark.parametrize("stopped", [False, True])
async def test_the_owner_finds_the_words_of_one_that_was_too_late(
    mock_clock: MockClock, timed: House, caplog: pytest.LogCaptureFixture, *, stopped: bool
) -> None:
    """Its error cannot say what it was at. Of one that somebody has stopped nobody asks."""
    kickoff_id = await timed.kickoff("started", "call gate", "hear", "result ok")
    await timed.gate.reaches(1)
    if stopped:
        await timed.stop_one(kickoff_id)
    else:
        mock_clock.jump(101)
    end = await timed.end_of(kickoff_id)
    assert end.status is (Status.STOPPED if stopped else Status.TIMED_OUT)
    told = f"execution {kickoff_id} failed; its worker's standard error ended:\nstopped\n"
    assert (told in caplog.text) is not stopped


async def test_one_that_ignores_its_deadline_too(mock_clock: MockClock, timed: House) -> None:
    kickoff_id = await timed.kickoff("started", "deaf", "call gate", "hang")
    await timed.gate.reaches(1)
    mock_clock.jump(101)
    for _ in range(2):  # the time for `stop`, and the time for SIGTERM
        await wait_all_tasks_blocked()
        mock_clock.jump(50)
    end = await timed.end_of(kickoff_id)
    assert end.status is Status.TIMED_OUT
    assert "(deadline); the worker ignored the message `stop` and SIGTERM" in (end.error or "")


async def test_the_time_in_which_it_was_started_counts(
    mock_clock: MockClock, timed: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    @asynccontextmanager
    async def slowly(*given: Any, **more: Any) -> AsyncIterator[Worker]:
        await trio.sleep(60)
        async with start_worker(*given, **more) as worker:
            yield worker

    monkeypatch.setattr(execution, "start_worker", slowly)
    kickoff_id = await timed.kickoff("started", "task a", "call gate", "hear", "result ok")
    await wait_all_tasks_blocked()
    mock_clock.jump(60)
    await timed.gate.reaches(1)
    mock_clock.jump(41)
    assert (await timed.end_of(kickoff_id)).status is Status.TIMED_OUT


async def test_when_the_daemon_ends_a_worker_has_its_grace(
    mock_clock: MockClock, timed: House, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    await timed.kickoff("started", "deaf", "call gate", "hang")
    await timed.gate.reaches(1)
    nursery.start_soon(timed.stop)
    for seconds in (10, 40):  # the time for `stop`, and the time for SIGTERM
        await wait_all_tasks_blocked()
        assert "is killed" not in caplog.text
        mock_clock.jump(seconds)
    await wait_all_tasks_blocked()
    assert "ignores SIGTERM and is killed" in caplog.text


async def test_time_in_the_queue_does_not_count(mock_clock: MockClock, timed: House) -> None:
    running = [await timed.kickoff("started", "call gate", "hear", "result ok") for _ in range(2)]
    waiting = await timed.kickoff()
    await timed.gate.reaches(2)
    mock_clock.jump(99)
    assert (await timed.look(waiting)).state is ExecutionState.PENDING
    await wait_all_tasks_blocked()
    mock_clock.jump(2)
    for each in running:
        assert (await timed.end_of(each)).status is Status.TIMED_OUT
    assert (await timed.end_of(waiting)).state is ExecutionState.SUCCESS


async def test_the_clock_stands_still_while_a_human_is_asked(
    mock_clock: MockClock, timed: House
) -> None:
    kickoff_id = await timed.kickoff(*BEGINS, *ASKS, *ENDS)
    await timed.gate.reaches(1)
    mock_clock.jump(60)
    timed.gate.open()
    await timed.reaches(kickoff_id, Status.WAITING_FOR_HUMAN_INPUT)
    await wait_all_tasks_blocked()  # its clock stands still just after that was recorded
    mock_clock.jump(999)
    await wait_all_tasks_blocked()
    await timed.resume(kickoff_id)
    assert (await timed.end_of(kickoff_id)).state is ExecutionState.SUCCESS


async def test_the_clock_goes_on_with_the_answer(mock_clock: MockClock, timed: House) -> None:
    """60 s before the question and 41 s after it are too many."""
    kickoff_id = await timed.kickoff(*BEGINS, *ASKS, "log resumed", "hang")
    await timed.gate.reaches(1)
    mock_clock.jump(60)
    timed.gate.open()
    await timed.reaches(kickoff_id, Status.WAITING_FOR_HUMAN_INPUT)
    await wait_all_tasks_blocked()
    mock_clock.jump(900)
    await wait_all_tasks_blocked()
    await timed.resume(kickoff_id)
    await timed.hears(kickoff_id, "resumed")
    mock_clock.jump(39)
    await wait_all_tasks_blocked()
    assert (await timed.look(kickoff_id)).state is ExecutionState.RUNNING
    mock_clock.jump(2)
    await wait_all_tasks_blocked()
    mock_clock.jump(10)  # the time for `stop`
    end = await timed.end_of(kickoff_id)
    assert end.error == (
        "it ran longer than the 100 s that its crew may (deadline); the worker ended at SIGTERM"
    )


async def test_nobody_answers(mock_clock: MockClock, timed: House) -> None:
    kickoff_id = await timed.kickoff("started", "task a", *ASKS, *ENDS)
    await timed.reaches(kickoff_id, Status.WAITING_FOR_HUMAN_INPUT)
    await wait_all_tasks_blocked()
    mock_clock.jump(1001)
    end = await timed.end_of(kickoff_id)
    assert end.status is Status.TIMED_OUT
    assert end.error == (
        "nobody answered the question about task a within the 1000 s that its crew gives a human "
        "(human_deadline); the worker ended without a signal"
    )


@pytest.mark.parametrize("store_limits", [StoreLimits(targets=0)])
async def test_an_answer_that_was_refused_leaves_the_human_the_time_there_was(
    mock_clock: MockClock, timed: House
) -> None:
    kickoff_id = await timed.kickoff("started", "task a", *ASKS, *ENDS)
    await timed.reaches(kickoff_id, Status.WAITING_FOR_HUMAN_INPUT)
    await wait_all_tasks_blocked()
    mock_clock.jump(500)
    await wait_all_tasks_blocked()
    with pytest.raises(Invalid, match="webhooks: more than 0"):
        await timed.resume(
            kickoff_id, webhooks=(WebhookTarget("task", "https://example.com/", ()),)
        )
    mock_clock.jump(499)
    await wait_all_tasks_blocked()
    await timed.resume(kickoff_id)
    assert (await timed.end_of(kickoff_id)).state is ExecutionState.SUCCESS


async def test_what_it_has_said_stands_though_it_is_slow_to_leave(
    mock_clock: MockClock,
    open_house: OpenHouse,
    crew: MakeCrew,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    house = await open_house(crew(deadline=10.0, grace=50.0))
    said_all = trio.Event()
    hear = Conversation.receive

    def noting(self: Conversation, line: bytes) -> FromWorker | ProtocolFault:
        message = hear(self, line)
        if isinstance(message, Result):
            said_all.set()
        return message

    monkeypatch.setattr(Conversation, "receive", noting)
    kickoff_id = await house.kickoff("started", "log so far", "result ok", "hang")
    await said_all.wait()
    mock_clock.jump(11)  # past the deadline, and not past the grace
    await wait_all_tasks_blocked(0.02)
    mock_clock.jump(50)
    end = await house.end_of(kickoff_id)
    assert (end.status, end.result) == (Status.COMPLETED, "ok")
