"""The deadlines of a worker and of a human, and a worker whose start hangs.

The clock stands still until a test moves it, while workers take the time that they take.
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.crews.execution import NOT_STARTED
from smartlinkd.processes.process_tree import Limits, shared_fork_server
from smartlinkd.store.model import Execution, ExecutionState, Status
from tests.processes.family import server_of, sleeping

if TYPE_CHECKING:
    from tests.crews.executor.conftest import CrewsDaemon, MakeCrew, StartDaemon

BEGINS = ("started", "task a", "call gate", "hear")
ASKS = ("ask a", "hear")
ENDS = ("done a", "result ok")


@pytest.fixture
async def timed(mock_clock: MockClock, start_daemon: StartDaemon, crew: MakeCrew) -> CrewsDaemon:
    """Executions may run for 100 s, wait for a human for 1000 s, and have 50 s to end."""
    return await start_daemon(crew(deadline=100.0, human_deadline=1000.0, grace=50.0))


async def test_execution_over_its_deadline_has_timed_out(
    mock_clock: MockClock, timed: CrewsDaemon
) -> None:
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


async def test_time_in_the_queue_does_not_count_to_the_deadline(
    mock_clock: MockClock, timed: CrewsDaemon
) -> None:
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


async def test_deadline_stands_still_while_a_human_is_asked(
    mock_clock: MockClock, timed: CrewsDaemon
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


async def test_deadline_counts_on_after_the_answer(
    mock_clock: MockClock, timed: CrewsDaemon
) -> None:
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


async def test_question_that_nobody_answers_times_out(
    mock_clock: MockClock, timed: CrewsDaemon
) -> None:
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


@pytest.fixture(autouse=True)
async def fork_server() -> AsyncIterator[None]:
    """A fork server that does not answer until it is killed and replaced."""
    async with shared_fork_server(Limits(leave=0.1)):
        async with sleeping() as tree:
            server = server_of(tree)
        os.kill(server, signal.SIGSTOP)
        yield


async def starting(daemon: CrewsDaemon) -> str:
    """An execution whose worker is being started."""
    kickoff_id = await daemon.kickoff()
    await daemon.reaches(kickoff_id, Status.RUNNING)
    await wait_all_tasks_blocked()
    return kickoff_id


async def ended_after(
    seconds: float, daemon: CrewsDaemon, kickoff_id: str, clock: MockClock
) -> Execution:
    """The execution, which ends then and not a second earlier."""
    clock.jump(seconds - 1)
    await wait_all_tasks_blocked()
    assert (await daemon.look(kickoff_id)).state is ExecutionState.RUNNING
    clock.jump(1)
    clock.rate = 1.0
    return await daemon.end_of(kickoff_id)


async def has_a_place(daemon: CrewsDaemon) -> None:
    """In a crew that has one place, the next execution runs."""
    assert (await daemon.end_of(await daemon.kickoff())).status is Status.COMPLETED


async def test_worker_start_that_hangs_counts_to_the_deadline(
    mock_clock: MockClock, start_daemon: StartDaemon, crew: MakeCrew
) -> None:
    daemon = await start_daemon(crew(max_running=1, deadline=30.0))
    end = await ended_after(30.0, daemon, await starting(daemon), mock_clock)
    assert end.status is Status.TIMED_OUT
    assert end.error == f"it ran longer than the 30 s that its crew may (deadline); {NOT_STARTED}"
    await has_a_place(daemon)


async def test_stop_cuts_a_worker_start_that_hangs_short(
    mock_clock: MockClock, start_daemon: StartDaemon, crew: MakeCrew
) -> None:
    daemon = await start_daemon(crew(max_running=1))
    kickoff_id = await starting(daemon)
    mock_clock.rate = 1.0
    await daemon.stop_one(kickoff_id)
    end = await daemon.look(kickoff_id)
    assert end.status is Status.STOPPED
    assert end.error == f"stopped by a holder of the organization token; {NOT_STARTED}"
    await has_a_place(daemon)
