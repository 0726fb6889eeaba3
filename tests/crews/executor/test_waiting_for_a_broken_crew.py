"""What waits for a crew that cannot run is counted, for as long as it waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from smartlinkd.crews.catalog.catalog import Catalog
from smartlinkd.crews.model import BrokenCrew, CrewLoad
from smartlinkd.store.model import ExecutionState, Status

if TYPE_CHECKING:
    from tests.crews.executor.conftest import House, MakeCrew, OpenHouse

WAITS = ("started", "call gate", "hear", "result ok")
HANG = 20.0  # seconds; what takes that long hangs
BROKEN = BrokenCrew("c", ())


async def killed_with_one_running(house: House, waiting: int) -> list[str]:
    """The ids of both kinds, the one that ran first."""
    ids = [await house.kickoff(*WAITS) for _ in range(1 + waiting)]
    await house.gate.reaches(1)
    await house.kill()
    return ids


async def comes_to(house: House, *loads: CrewLoad) -> None:
    """Wait until the crews that are listed have this in hand."""
    with trio.fail_after(HANG):
        while [each.load for each in house.executor.listed()] != list(loads):
            await wait_all_tasks_blocked(0.001)


async def test_from_the_start_until_it_is_stopped_or_its_crew_is_mended(
    open_house: OpenHouse, crew: MakeCrew
) -> None:
    ids = await killed_with_one_running(await open_house(crew(max_running=1)), waiting=3)
    house = await open_house(crew("other"), broken=(BROKEN,))
    assert house.executor.load()["c"] == CrewLoad(waiting=3)
    await house.stop_one(ids[1])
    assert house.executor.load()["c"] == CrewLoad(waiting=2)
    await house.executor.apply_catalog(Catalog({"c": crew(max_running=1)}))
    await house.gate.reaches(1)
    assert house.executor.load()["c"] == CrewLoad(running=1, waiting=1)
    house.gate.open()
    assert (await house.end_of(ids[3])).state is ExecutionState.SUCCESS


async def test_until_its_crew_is_taken_out(open_house: OpenHouse, crew: MakeCrew) -> None:
    ids = await killed_with_one_running(await open_house(crew(max_running=1)), waiting=1)
    house = await open_house(crew("other"), broken=(BROKEN,))
    await house.executor.apply_catalog(Catalog({"other": crew("other")}))
    assert (await house.end_of(ids[1])).status is Status.INTERRUPTED
    assert set(house.executor.load()) == {"other"}


@pytest.mark.parametrize(("most", "waiting"), [(3, 2), (0, 1)])
async def test_what_was_interrupted_is_among_them_if_it_runs_again(
    open_house: OpenHouse,
    crew: MakeCrew,
    limits: dict[str, Any],
    most: int,
    waiting: int,
) -> None:
    limits["max_reruns"] = most
    await killed_with_one_running(await open_house(crew(max_running=1)), waiting=1)
    house = await open_house(crew("other"), broken=(BrokenCrew("c", (), on_restart="rerun"),))
    await comes_to(house, CrewLoad(), CrewLoad(waiting=waiting))


async def test_a_crew_that_is_back_broken_while_it_runs_is_listed_as_running(
    open_house: OpenHouse, crew: MakeCrew
) -> None:
    house = await open_house(crew())
    await house.kickoff(*WAITS)
    await house.gate.reaches(1)
    await house.executor.apply_catalog(Catalog({"other": crew("other")}))
    await house.executor.apply_catalog(Catalog({"other": crew("other")}, (BROKEN,), default="c"))
    other, broken = house.executor.listed()
    assert (other.crew.name, other.default, other.paths) == ("other", False, ("/crews/other",))
    assert (broken.crew, broken.default, broken.paths) == (BROKEN, True, ("/crews/c", "/"))
    assert (other.load, broken.load) == (CrewLoad(), CrewLoad(running=1))
    house.gate.open()
    await comes_to(house, CrewLoad(), CrewLoad())
