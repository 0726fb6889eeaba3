"""The deadlines of a worker and of a human, and a worker whose start hangs.

The clock stands still until a test moves it, while workers take the time that they take.
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator

import pytest
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.crews.execution import NOT_STARTED
from smartlinkd.processes.process_tree import Limits, fork_server
from smartlinkd.store.model import ExecutionState, Status
from tests.crews.executor.conftest import CrewsDaemon, StartDaemon, make_crew
from tests.processes.family import server_of, sleeping

BEGINS = ("started", "task a", "call gate", "echo")
ASKS = ("ask a", "echo")


@pytest.fixture
async def timed(mock_clock: MockClock, start_daemon: StartDaemon) -> CrewsDaemon:
    """Executions may run for 100 s, wait for a human for 1000 s, and have 50 s to end."""
    return await start_daemon(make_crew(deadline=100.0, human_deadline=1000.0, grace=50.0))


async def test_execution_over_its_deadline_has_timed_out_and_one_in_the_queue_has_not(
    mock_clock: MockClock, timed: CrewsDaemon
) -> None:
    running = [await timed.kickoff("started", "call gate", "echo", "result ok") for _ in range(2)]
    waiting = await timed.kickoff()
    await timed.gate.reaches(2)
    mock_clock.jump(99)
    await wait_all_tasks_blocked()
    states = [(await timed.look(each)).state for each in (*running, waiting)]
    assert states == [ExecutionState.RUNNING] * 2 + [ExecutionState.PENDING]
    mock_clock.jump(2)
    for each in running:
        end = await timed.end_of(each)
        assert (end.state, end.status) == (ExecutionState.FAILED, Status.TIMED_OUT)
        assert end.error == (
            "it ran longer than the 100 s that its crew may (deadline); the worker ended without "
            "a signal"
        )
    assert (await timed.end_of(waiting)).state is ExecutionState.SUCCESS


async def test_deadline_stands_still_while_a_human_is_asked_and_counts_on_afterwards(
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


@pytest.fixture
async def stopped_fork_server() -> AsyncIterator[None]:
    """A fork server that does not answer until it is killed and replaced."""
    async with fork_server(Limits(leave=0.1)):
        async with sleeping() as tree:
            server = server_of(tree)
        os.kill(server, signal.SIGSTOP)
        yield


@pytest.mark.parametrize(
    ("is_stopped", "status", "why"),
    [
        (False, Status.TIMED_OUT, "it ran longer than the 30 s that its crew may (deadline)"),
        (True, Status.STOPPED, "stopped by a holder of the organization token"),
    ],
)
async def test_worker_start_that_hangs_is_cut_short(  # noqa: PLR0917 - fixtures and a row
    stopped_fork_server: None,
    mock_clock: MockClock,
    start_daemon: StartDaemon,
    is_stopped: bool,
    status: Status,
    why: str,
) -> None:
    daemon = await start_daemon(make_crew(max_running=1, deadline=30.0))
    kickoff_id = await daemon.kickoff()
    await daemon.reaches(kickoff_id, Status.RUNNING)
    await wait_all_tasks_blocked()
    mock_clock.jump(29)
    await wait_all_tasks_blocked()
    assert (await daemon.look(kickoff_id)).state is ExecutionState.RUNNING
    if is_stopped:
        mock_clock.rate = 1.0
        await daemon.stop_one(kickoff_id)
    else:
        mock_clock.jump(1)
        mock_clock.rate = 1.0
    end = await daemon.end_of(kickoff_id)
    assert (end.status, end.error) == (status, f"{why}; {NOT_STARTED}")
    # The next execution has its place.
    assert (await daemon.end_of(await daemon.kickoff())).status is Status.COMPLETED
    await daemon.comes_to_rest()
