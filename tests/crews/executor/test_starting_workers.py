"""Workers that come up at the same time, and executions that wait until theirs may."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock

from smartlinkd.crews.catalog.catalog import Catalog
from smartlinkd.crews.model import CrewLoad
from smartlinkd.crews.scheduler import NEVER_RUN
from smartlinkd.errors import Unavailable
from smartlinkd.store.model import Created, Execution, ExecutionState, Status
from tests.fakes.scrape import observed

if TYPE_CHECKING:
    from tests.crews.executor.conftest import House, MakeCrew, OpenHouse


@pytest.fixture(autouse=True)
def one_at_a_time(limits: dict[str, Any]) -> None:
    """A worker that says nothing is not let be."""
    limits.update(max_starting=1, start_timeout_s=10_000.0)


@pytest.fixture
async def house(open_house: OpenHouse, crew: MakeCrew) -> House:
    return await open_house(crew(max_running=3), crew("other"))


async def one_that_waits(house: House, *script: str) -> str:
    """An execution that its crew has a place for, and whose worker may not come up yet."""
    waiting = house.executor.load()["c"].waiting
    kickoff_id = await house.kickoff(*script)
    assert house.executor.load()["c"] == CrewLoad(running=1, waiting=waiting + 1)
    found = await house.look(kickoff_id)
    assert (found.state, found.started_at) == (ExecutionState.PENDING, None)
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


async def test_they_come_up_in_the_order_of_the_kickoffs(house: House) -> None:
    first = await house.kickoff("hang")
    others = [await one_that_waits(house) for _ in range(3)]
    await house.stop_one(first)
    began = [(await completes(house, each)).started_at for each in others]
    assert None not in began
    assert began == sorted(began, key=str)


async def test_no_crew_waits_for_another(house: House) -> None:
    first = await house.kickoff("hang")
    await one_that_waits(house)
    await completes(house, await house.kickoff(crew="other"), "other")
    assert (await house.look(first)).state is ExecutionState.RUNNING


async def test_who_has_none_that_comes_up_is_next(
    open_house: OpenHouse, crew: MakeCrew, limits: dict[str, Any]
) -> None:
    limits["max_starting"] = 4
    house = await open_house(crew(max_running=9), crew("other", max_running=9))
    four = [await house.kickoff("hang") for _ in range(4)]
    await house.kickoff("hang")
    own = [await house.kickoff("hang", crew="other") for _ in range(2)]
    await house.stop_one(four[0])  # five came up, which were one too many
    await house.stop_one(four[1])
    await house.reaches(own[1], Status.RUNNING, "other")
    assert {name: load.waiting for name, load in house.executor.load().items()} == {
        "c": 1,
        "other": 0,
    }


async def test_as_many_come_up_when_crews_kick_off_in_the_same_moment(
    open_house: OpenHouse, crew: MakeCrew, limits: dict[str, Any]
) -> None:
    limits["max_starting"] = 3
    house = await open_house(crew(max_running=9), crew("other", max_running=9))
    for each in ("c", "other"):
        await house.kickoff("hang", crew=each)
    async with trio.open_nursery() as nursery:
        for each in ("c", "other"):
            nursery.start_soon(partial(house.kickoff, "hang", crew=each))
    assert sum(load.running for load in house.executor.load().values()) == 3
    assert sum(load.waiting for load in house.executor.load().values()) == 1


async def test_a_turn_that_comes_while_a_kickoff_is_recorded_is_had(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = house.folder / "go"
    os.mkfifo(go)
    first = await house.kickoff(f"read {go}", "started", "log here", "hang")
    create = house.store.create

    async def slow(*args: Any, **kwargs: Any) -> Created:
        created = await create(*args, **kwargs)
        await trio.to_thread.run_sync(go.write_text, "go")
        await house.hears(first, "here")
        return created

    monkeypatch.setattr(house.store, "create", slow)
    await completes(house, await house.kickoff())


async def test_a_turn_for_a_kickoff_that_is_refused_is_the_next_ones(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: Any, **__: Any) -> Created:
        raise Unavailable("the disk is full", retry_after=5)

    with monkeypatch.context() as patch:
        patch.setattr(house.store, "create", full)
        with pytest.raises(Unavailable, match="the disk is full"):
            await house.kickoff()
    await completes(house, await house.kickoff())


async def test_a_turn_for_a_kickoff_that_is_there_already_is_the_next_ones(
    open_house: OpenHouse, crew: MakeCrew, limits: dict[str, Any]
) -> None:
    limits["max_starting"] = 2
    house = await open_house(crew(max_running=3))
    found = []

    async def the_same() -> None:
        found.append(await house.kickoff("hang", key="k"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(the_same)
        nursery.start_soon(the_same)
    assert found[0] == found[1]
    await house.kickoff("hang")
    assert house.executor.load()["c"] == CrewLoad(running=2, waiting=0)


async def test_one_is_up_when_it_has_said_something(house: House) -> None:
    first = await house.kickoff("started", "hang")
    await completes(house, await house.kickoff())
    assert (await house.look(first)).state is ExecutionState.RUNNING


async def test_worker_that_says_nothing_counts_as_started_after_its_time(
    mock_clock: MockClock, open_house: OpenHouse, crew: MakeCrew, limits: dict[str, Any]
) -> None:
    limits["start_timeout_s"] = 10.0
    mock_clock.rate = 1.0
    house = await open_house(crew())
    first = await house.kickoff("hang")
    second = await one_that_waits(house)
    mock_clock.jump(10.0)
    await completes(house, second)
    assert (await house.look(first)).state is ExecutionState.RUNNING


@pytest.mark.parametrize("script", [["failed no"], ["raw nonsense", "hang"], ["exit 3"]])
async def test_one_that_ends_without_coming_up_is_waited_for_no_more(
    house: House, script: list[str]
) -> None:
    first = await house.kickoff(*script)
    await completes(house, await house.kickoff())
    assert (await house.end_of(first)).status is Status.ERROR


async def test_one_whose_program_is_not_there_is_waited_for_no_more(
    open_house: OpenHouse, crew: MakeCrew
) -> None:
    house = await open_house(crew("c", "/nowhere/at/all", max_running=3))
    for each in [await house.kickoff() for _ in range(3)]:
        assert (await house.end_of(each)).status is Status.ERROR


async def test_one_that_waits_can_be_stopped_and_is_not_in_the_way(house: House) -> None:
    first = await house.kickoff("hang")
    second = await one_that_waits(house)
    third = await one_that_waits(house)
    await house.stop_one(second)
    assert str((await house.look(second)).error).endswith("before its turn came")
    await house.stop_one(first)
    await completes(house, third)


async def test_who_waits_to_come_up_has_a_place_and_takes_none_in_the_queue(
    open_house: OpenHouse, crew: MakeCrew
) -> None:
    house = await open_house(crew(max_running=3, queue=1))
    await house.kickoff("hang")
    for _ in range(3):
        await one_that_waits(house)
    with pytest.raises(Unavailable, match=r"3 waiting: it takes 1 \(queue\), and 2 more"):
        await house.kickoff()


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
    assert found.started_at is not None
    assert found.started_at >= until
    # Of the second alone, if the first was stopped before it had its worker.
    ((_, seconds),) = observed(house.executor.waits).values()
    assert seconds >= (until - found.created_at).total_seconds()


@pytest.mark.parametrize("how", ["in order", "in the midst of all"])
async def test_the_next_daemon_runs_one_that_waits_as_if_nothing_had_been(
    house: House, open_house: OpenHouse, crew: MakeCrew, how: str
) -> None:
    await house.kickoff("hang")
    second = await one_that_waits(house)
    with trio.fail_after(20.0):
        await (house.stop() if how == "in order" else house.kill())
    again = await open_house(crew(on_restart="fail"))
    await completes(again, second)
    story = ["crew_kickoff_started", "crew_kickoff_completed"]
    assert await again.story(second) == story


async def test_one_that_waits_is_run_as_its_crew_is_then(house: House, crew: MakeCrew) -> None:
    first = await house.kickoff("hang")
    second = await one_that_waits(house, "started", "given", "result ok")
    await house.executor.apply_catalog(Catalog({"c": crew(tools=("add",))}, ()))
    await house.stop_one(first)
    await completes(house, second)
    assert '"tools": ["add"]' in (await house.logs(second))[0]


async def test_one_that_waits_for_a_crew_that_is_taken_out_ends(house: House) -> None:
    await house.kickoff("hang")
    second = await one_that_waits(house)
    await house.executor.apply_catalog(Catalog({}, ()))
    found = await house.end_of(second)
    assert (found.status, found.error) == (Status.INTERRUPTED, NEVER_RUN)
