"""A worker that is not started, since whoever is to do it hangs.

The clock is the test's: it stands still until it is told to jump, or to go.
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.crews.execution import NOT_STARTED
from smartlinkd.crews.scheduler import INTERRUPTED
from smartlinkd.processes.process_tree import Limits, shared_fork_server
from smartlinkd.store.model import Execution, ExecutionState, Status
from tests.processes.family import server_of, sleeping

if TYPE_CHECKING:
    from tests.crews.executor.conftest import House, MakeCrew, OpenHouse


@pytest.fixture(autouse=True)
async def fork_server() -> AsyncIterator[None]:
    """It does not answer, until it is killed for that and replaced."""
    async with shared_fork_server(Limits(leave=0.1)):
        async with sleeping() as tree:
            server = server_of(tree)
        os.kill(server, signal.SIGSTOP)
        yield


async def starting(house: House) -> str:
    """An execution whose worker is being started."""
    kickoff_id = await house.kickoff()
    await wait_all_tasks_blocked()
    assert (await house.look(kickoff_id)).state is ExecutionState.RUNNING
    return kickoff_id


async def ended_after(seconds: float, house: House, kickoff_id: str, clock: MockClock) -> Execution:
    """The execution, which ends then and not a second earlier."""
    clock.jump(seconds - 1)
    await wait_all_tasks_blocked()
    assert (await house.look(kickoff_id)).state is ExecutionState.RUNNING
    clock.jump(1)
    clock.rate = 1.0
    return await house.end_of(kickoff_id)


async def has_a_place(house: House) -> None:
    """In a crew that has one place, the next execution runs."""
    assert (await house.end_of(await house.kickoff())).status is Status.COMPLETED


async def test_a_start_has_a_limit_of_its_own(
    mock_clock: MockClock, open_house: OpenHouse, crew: MakeCrew
) -> None:
    house = await open_house(crew(max_running=1, deadline=1000.0))
    end = await ended_after(Limits().start, house, await starting(house), mock_clock)
    assert end.status is Status.ERROR
    assert (end.error or "").startswith("the worker could not be started: ")
    assert "it did not start within 60 s" in (end.error or "")
    await has_a_place(house)


async def test_it_counts_to_the_deadline(
    mock_clock: MockClock, open_house: OpenHouse, crew: MakeCrew
) -> None:
    house = await open_house(crew(max_running=1, deadline=30.0))
    end = await ended_after(30.0, house, await starting(house), mock_clock)
    assert end.status is Status.TIMED_OUT
    assert end.error == f"it ran longer than the 30 s that its crew may (deadline); {NOT_STARTED}"
    await has_a_place(house)


async def test_a_stop_cuts_it_short(
    mock_clock: MockClock, open_house: OpenHouse, crew: MakeCrew
) -> None:
    house = await open_house(crew(max_running=1))
    kickoff_id = await starting(house)
    mock_clock.rate = 1.0
    await house.stop_one(kickoff_id)
    end = await house.look(kickoff_id)
    assert end.status is Status.STOPPED
    assert end.error == f"stopped by a holder of the organization token; {NOT_STARTED}"
    await has_a_place(house)


async def test_the_daemons_end_cuts_it_short_and_leaves_it_to_the_next(
    mock_clock: MockClock, open_house: OpenHouse, crew: MakeCrew
) -> None:
    house = await open_house(crew())
    kickoff_id = await starting(house)
    mock_clock.rate = 1.0
    await house.stop()
    assert mock_clock.current_time() < Limits().start
    end = await (await open_house(crew())).end_of(kickoff_id)
    assert (end.status, end.error) == (Status.INTERRUPTED, INTERRUPTED)
