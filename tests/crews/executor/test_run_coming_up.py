"""Workers that come up at the same time, and those that wait until they may."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from daemon.crews import starts
from daemon.crews.lines import INTERRUPTED
from daemon.crews.run import NOT_STARTED
from daemon.crews.starts import Starts
from daemon.journal.model import Execution, State, Status
from tests.fakes.scrape import observed

if TYPE_CHECKING:
    from tests.crews.executor.conftest import House, MakeCrew, OpenHouse


@pytest.fixture(autouse=True)
def one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is one that says nothing let be."""
    monkeypatch.setattr(Starts.__init__, "__defaults__", (1,))
    monkeypatch.setattr(starts, "SILENCE", 10_000.0)


@pytest.fixture
async def house(open_house: OpenHouse, crew: MakeCrew) -> House:
    return await open_house(crew(max_running=3), crew("other"))


async def one_that_waits(house: House, *script: str) -> str:
    """An execution whose turn it is, and whose worker may not come up yet."""
    kickoff_id = await house.kickoff(*script)
    await wait_all_tasks_blocked()
    assert (await house.look(kickoff_id)).state is State.RUNNING
    assert len(list((house.folder / "runs").iterdir())) == 1
    return kickoff_id


async def completes(house: House, kickoff_id: str, crew: str = "c") -> Execution:
    found = await house.end_of(kickoff_id, crew)
    assert (found.status, found.error) == (Status.COMPLETED, None)
    return found


async def test_the_next_worker_waits_until_one_is_up(house: House) -> None:
    first = await house.kickoff("hang")
    second = await one_that_waits(house)
    await house.stop_one(first)
    await completes(house, second)


async def test_no_crew_waits_for_another(house: House) -> None:
    first = await house.kickoff("hang")
    await one_that_waits(house)
    await completes(house, await house.kickoff(crew="other"), "other")
    assert (await house.look(first)).state is State.RUNNING


async def test_one_is_up_when_it_has_said_something(house: House) -> None:
    first = await house.kickoff("started", "hang")
    await completes(house, await house.kickoff())
    assert (await house.look(first)).state is State.RUNNING


@pytest.mark.parametrize("script", [["failed no"], ["raw nonsense", "hang"], ["exit 3"]])
async def test_one_that_ends_without_coming_up_is_waited_for_no_more(
    house: House, script: list[str]
) -> None:
    first = await house.kickoff(*script)
    await completes(house, await house.kickoff())
    assert (await house.end_of(first)).status is Status.ERROR


async def test_one_that_waits_can_be_stopped_and_is_not_in_the_way(house: House) -> None:
    first = await house.kickoff("hang")
    second = await one_that_waits(house)
    third = await one_that_waits(house)
    await house.stop_one(second)
    error = (await house.look(second)).error
    assert error is not None
    assert NOT_STARTED in error
    await house.stop_one(first)
    await completes(house, third)


async def test_the_deadline_begins_when_it_may_come_up(
    mock_clock: MockClock, open_house: OpenHouse, crew: MakeCrew
) -> None:
    mock_clock.rate = 1.0
    house = await open_house(crew(deadline=40.0))
    first = await house.kickoff("hang")
    second = await one_that_waits(house, "started", "call gate", "hear", "result ok")
    mock_clock.jump(25.0)
    await house.stop_one(first)
    await house.gate.reaches(1)
    mock_clock.jump(25.0)
    house.gate.open()
    await completes(house, second)


async def test_how_long_it_waited_to_come_up_is_known(house: House) -> None:
    first = await house.kickoff("hang")
    second = await one_that_waits(house)
    until = datetime.now(UTC)
    await house.stop_one(first)
    found = await completes(house, second)
    ((count, seconds),) = observed(house.executor.waits).values()
    assert count == 2
    assert seconds >= (until - found.created_at).total_seconds()


async def test_the_daemon_ends_while_one_waits(
    house: House, open_house: OpenHouse, crew: MakeCrew
) -> None:
    await house.kickoff("hang")
    second = await one_that_waits(house)
    with trio.fail_after(20.0):
        await house.stop()
    again = await open_house(crew())
    found = await again.end_of(second)
    assert (found.status, found.error) == (Status.INTERRUPTED, INTERRUPTED)
