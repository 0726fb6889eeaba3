"""Workers that come up at the same time, and executions that wait until theirs may."""

from __future__ import annotations

from typing import Any

import pytest
from trio.testing import MockClock

from smartlinkd.crews.model import CrewLoad
from smartlinkd.store.model import Execution, ExecutionState, Status
from tests.crews.executor.conftest import CrewsDaemon, StartDaemon, make_crew


@pytest.fixture(autouse=True)
def one_at_a_time(limits: dict[str, Any]) -> None:
    """A worker that says nothing is not let be."""
    limits.update(max_starting=1, start_timeout_s=10_000.0)


@pytest.fixture
async def daemon(start_daemon: StartDaemon) -> CrewsDaemon:
    return await start_daemon(make_crew(max_running=3), make_crew("other"))


async def one_that_waits(daemon: CrewsDaemon, *script: str) -> str:
    """An execution that its crew has a place for, and whose worker may not come up yet."""
    waiting = daemon.executor.load()["c"].waiting
    kickoff_id = await daemon.kickoff(*script)
    assert daemon.executor.load()["c"] == CrewLoad(running=1, waiting=waiting + 1)
    found = await daemon.look(kickoff_id)
    assert (found.state, found.started_at) == (ExecutionState.PENDING, None)
    return kickoff_id


async def completes(daemon: CrewsDaemon, kickoff_id: str, crew: str = "c") -> Execution:
    found = await daemon.end_of(kickoff_id, crew)
    assert (found.status, found.error) == (Status.COMPLETED, None)
    return found


async def test_next_worker_waits_while_another_of_its_crew_starts(daemon: CrewsDaemon) -> None:
    first = await daemon.kickoff("hang")
    second = await one_that_waits(daemon)
    await completes(daemon, await daemon.kickoff(crew="other"), "other")
    assert (await daemon.look(first)).state is ExecutionState.RUNNING
    await daemon.stop_one(first)
    await completes(daemon, second)


async def test_worker_counts_as_started_once_it_said_something(daemon: CrewsDaemon) -> None:
    first = await daemon.kickoff("started", "hang")
    await completes(daemon, await daemon.kickoff())
    assert (await daemon.look(first)).state is ExecutionState.RUNNING


async def test_worker_that_says_nothing_counts_as_started_after_its_time(
    mock_clock: MockClock, start_daemon: StartDaemon, limits: dict[str, Any]
) -> None:
    limits["start_timeout_s"] = 10.0
    mock_clock.rate = 1.0
    daemon = await start_daemon(make_crew())
    first = await daemon.kickoff("hang")
    second = await one_that_waits(daemon)
    mock_clock.jump(10.0)
    await completes(daemon, second)
    assert (await daemon.look(first)).state is ExecutionState.RUNNING


@pytest.mark.parametrize("script", [["failed no"], ["raw nonsense", "hang"], ["exit 3"]])
async def test_worker_that_ends_at_its_start_holds_up_nobody(
    daemon: CrewsDaemon, script: list[str]
) -> None:
    first = await daemon.kickoff(*script)
    await completes(daemon, await daemon.kickoff())
    assert (await daemon.end_of(first)).status is Status.ERROR
