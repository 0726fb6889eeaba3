"""Other crews while some run: what runs goes on, what waits is nobody's loss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from smartlinkd.crews.catalog.catalog import Catalog
from smartlinkd.crews.model import BrokenCrew, Crew, CrewLoad
from smartlinkd.crews.scheduler import NEVER_RUN
from smartlinkd.errors import NotFound, Unavailable
from smartlinkd.store.model import ExecutionState, Status

if TYPE_CHECKING:
    from tests.crews.executor.conftest import House, MakeCrew, NewHouse, OpenHouse

WAITS = ("started", "call gate", "hear", "result ok")
HANG = 20.0  # seconds; what takes that long hangs
BROKEN = Catalog({}, (BrokenCrew("c", (), ("an", "bo")),))


def having(*crews: Crew) -> Catalog:
    return Catalog({crew.name: crew for crew in crews})


async def one_running_one_waiting(house: House) -> tuple[str, str]:
    running = await house.kickoff(*WAITS)
    await house.gate.reaches(1)
    return running, await house.kickoff(*WAITS)


def records_late(house: House, monkeypatch: pytest.MonkeyPatch) -> trio.Event:
    """Its journal records no change until this is set."""
    record, may_record = house.store.record, trio.Event()

    async def late(*args: Any) -> None:
        await may_record.wait()
        await record(*args)

    monkeypatch.setattr(house.store, "record", late)
    return may_record


async def its_place_is_free(house: House) -> None:
    """And nobody has taken it. The end is told while its worker is still there."""
    with trio.fail_after(HANG):
        while house.executor.load()["c"] != CrewLoad(running=0, waiting=1):
            await wait_all_tasks_blocked(0.001)


async def test_a_new_crew_can_be_kicked_off(open_house: OpenHouse, crew: MakeCrew) -> None:
    house = await open_house(crew())
    await house.executor.apply_catalog(having(crew(), crew("new")))
    assert (
        await house.end_of(await house.kickoff(crew="new"), "new")
    ).state is ExecutionState.SUCCESS
    assert set(house.executor.catalog.crews) == {"c", "new"}


async def test_more_may_run_from_then_on(open_house: OpenHouse, crew: MakeCrew) -> None:
    house = await open_house(crew(max_running=1))
    await one_running_one_waiting(house)
    await house.executor.apply_catalog(having(crew(max_running=2)))
    await house.gate.reaches(2)
    house.gate.open()


async def test_with_less_room_nothing_that_runs_is_ended(
    open_house: OpenHouse, crew: MakeCrew
) -> None:
    house = await open_house(crew(max_running=2))
    ids = [await house.kickoff(*WAITS) for _ in range(3)]
    await house.gate.reaches(2)
    await house.executor.apply_catalog(having(crew(max_running=1, queue=2)))
    assert house.executor.load() == {"c": CrewLoad(running=2, waiting=1)}
    ids.append(await house.kickoff(*WAITS))
    with pytest.raises(Unavailable, match=r"2 waiting: it takes 2 \(queue\); try"):
        await house.kickoff()
    house.gate.open()
    assert {(await house.end_of(each)).state for each in ids} == {ExecutionState.SUCCESS}


async def test_a_crew_taken_out_ends_what_waits_and_not_what_runs(
    open_house: OpenHouse, crew: MakeCrew
) -> None:
    house = await open_house(crew(max_running=1))
    running, waiting = await one_running_one_waiting(house)
    await house.executor.apply_catalog(having(crew("other")))
    ended = await house.end_of(waiting)
    assert (ended.status, ended.error) == (Status.INTERRUPTED, NEVER_RUN)
    with pytest.raises(NotFound):
        await house.kickoff()
    house.gate.open()
    assert (await house.end_of(running)).state is ExecutionState.SUCCESS
    await house.comes_to_rest()
    assert set(house.executor.load()) == {"other"}


async def test_a_crew_taken_out_and_put_back_runs_on(open_house: OpenHouse, crew: MakeCrew) -> None:
    house = await open_house(crew(max_running=1))
    running, _ = await one_running_one_waiting(house)
    await house.executor.apply_catalog(having(crew("other")))
    await house.executor.apply_catalog(having(crew(max_running=1)))
    new = await house.kickoff()
    assert house.executor.load()["c"] == CrewLoad(running=1, waiting=1)
    house.gate.open()
    assert (await house.end_of(running)).state is ExecutionState.SUCCESS
    assert (await house.end_of(new)).state is ExecutionState.SUCCESS


async def test_of_a_crew_that_breaks_those_that_wait_wait_on(
    open_house: OpenHouse, crew: MakeCrew
) -> None:
    house = await open_house(crew(max_running=1))
    running, waiting = await one_running_one_waiting(house)
    await house.executor.apply_catalog(BROKEN)
    house.gate.open()
    assert (await house.end_of(running)).state is ExecutionState.SUCCESS
    await its_place_is_free(house)
    assert (await house.look(waiting)).state is ExecutionState.PENDING
    await house.executor.apply_catalog(having(crew(max_running=1)))
    assert (await house.end_of(waiting)).state is ExecutionState.SUCCESS


async def test_one_that_waits_for_a_broken_crew_can_be_stopped(
    open_house: OpenHouse, crew: MakeCrew
) -> None:
    house = await open_house(crew(max_running=1))
    _, waiting = await one_running_one_waiting(house)
    await house.executor.apply_catalog(BROKEN)
    await house.stop_one(waiting)
    assert (await house.look(waiting)).status is Status.STOPPED
    await house.executor.apply_catalog(having(crew(max_running=1)))
    house.gate.open()
    assert set(house.executor.load().values()) <= {CrewLoad(1, 0), CrewLoad(0, 0)}


async def test_a_crew_that_was_broken_at_the_start_goes_on_when_it_is_mended(
    open_house: OpenHouse, crew: MakeCrew
) -> None:
    before = await open_house(crew(max_running=1))
    _, first = await one_running_one_waiting(before)
    second, stopped = await before.kickoff(), await before.kickoff()
    await before.kill()
    house = await open_house(crew("other"), broken=BROKEN.broken)
    await house.stop_one(stopped)
    house.gate.open()
    await house.executor.apply_catalog(having(crew(max_running=1)))
    ran = [await house.end_of(each) for each in (first, second)]
    assert {each.state for each in ran} == {ExecutionState.SUCCESS}
    assert ran[0].started_at is not None
    assert ran[1].started_at is not None
    assert ran[0].started_at < ran[1].started_at
    assert (await house.look(stopped)).status is Status.STOPPED


async def test_a_crew_that_was_broken_at_the_start_ends_what_waits_when_it_is_taken_out(
    open_house: OpenHouse, crew: MakeCrew
) -> None:
    before = await open_house(crew(max_running=1))
    _, waiting = await one_running_one_waiting(before)
    stopped = await before.kickoff()
    await before.kill()
    house = await open_house(crew("other"), broken=(BrokenCrew("c", ()),))
    await house.stop_one(stopped)
    await house.executor.apply_catalog(Catalog({"other": crew("other")}, BROKEN.broken))
    await wait_all_tasks_blocked()
    assert (await house.look(waiting)).state is ExecutionState.PENDING
    await house.executor.apply_catalog(having(crew("other")))
    ended = await house.end_of(waiting)
    assert (ended.status, ended.error) == (Status.INTERRUPTED, NEVER_RUN)
    assert (await house.look(stopped)).status is Status.STOPPED


async def test_a_crew_that_is_back_does_not_run_what_the_start_is_ending(
    open_house: OpenHouse,
    new_house: NewHouse,
    crew: MakeCrew,
    nursery: trio.Nursery,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was gone at the start, and what waited for it is being ended, one after the other."""
    before = await open_house(crew(max_running=1))
    ids = [*await one_running_one_waiting(before), *[await before.kickoff() for _ in range(3)]]
    await before.kill()
    house = new_house(crew("other"))
    may_record = records_late(house, monkeypatch)
    await nursery.start(house.serve)
    await house.executor.apply_catalog(having(crew(), crew("other")))
    new = await house.kickoff()  # comes in when all is in the line that is to be there
    assert house.executor.load()["c"] == CrewLoad(running=1, waiting=0)
    may_record.set()
    assert {(await house.end_of(each)).status for each in ids} == {Status.INTERRUPTED}
    assert (await house.end_of(new)).state is ExecutionState.SUCCESS


async def test_one_that_is_stopped_twice_while_its_crew_is_broken_ends_once(
    open_house: OpenHouse, crew: MakeCrew, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = await open_house(crew(max_running=1))
    _, waiting = await one_running_one_waiting(before)
    await before.kill()
    house = await open_house(crew("other"), broken=BROKEN.broken)
    may_record = records_late(house, monkeypatch)
    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(house.stop_one, waiting)
            await wait_all_tasks_blocked(0.01)
        may_record.set()
    assert (await house.look(waiting)).status is Status.STOPPED
    assert await house.story(waiting) == ["crew_kickoff_failed"]


async def test_a_kickoff_on_its_way_into_a_crew_taken_out_is_refused_or_ended(
    open_house: OpenHouse, crew: MakeCrew
) -> None:
    """Each of many that come in while the crew goes: none is accepted and forgotten."""
    house = await open_house(crew())
    accepted: list[str] = []
    refused: list[NotFound] = []

    async def kick_off() -> None:
        try:
            accepted.append(await house.kickoff())
        except NotFound as refusal:
            refused.append(refusal)

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(kick_off)
            if number == 10:
                nursery.start_soon(house.executor.apply_catalog, having(crew("other")))
            await trio.lowlevel.checkpoint()
    assert accepted
    assert refused
    for each in accepted:
        await house.end_of(each)


async def test_the_next_incarnation_has_them_too(open_house: OpenHouse, crew: MakeCrew) -> None:
    house = await open_house(crew())
    await house.executor.apply_catalog(having(crew("new")))
    await house.kill()
    house.scope, house.ended = trio.CancelScope(), trio.Event()
    async with trio.open_nursery() as nursery:
        await nursery.start(house.serve)
        assert set(house.executor.load()) == {"new"}
        await house.stop()
