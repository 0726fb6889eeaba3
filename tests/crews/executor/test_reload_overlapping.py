"""Reloads that overlap each other, and kickoffs that the disk holds up meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from smartlinkd.crews.model import CrewLoad
from smartlinkd.crews.recorder import Recorder
from smartlinkd.store.model import ExecutionState, Status
from tests.crews.executor.test_reload import HANG, WAITS, having

if TYPE_CHECKING:
    from tests.crews.executor.conftest import House, MakeCrew, OpenHouse

    class AtTheDoor(Protocol):
        async def __call__(self, house: House, *script: str) -> Client: ...


class Disk:
    """Where new executions get to, when it does not stall."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        enter = Recorder.create
        self.works = trio.Event()
        self.works.set()

        async def enter_late(*arguments: Any) -> Any:
            await self.works.wait()
            return await enter(*arguments)

        monkeypatch.setattr(Recorder, "create", enter_late)

    def stall(self) -> None:
        self.works = trio.Event()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


class Client:
    """Somebody who kicks off, and waits for the answer."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._answered = trio.Event()

    async def kick_off(self, *script: str) -> None:
        self._id = await self._house.kickoff(*script)
        self._answered.set()

    async def answer(self) -> str:
        with trio.fail_after(HANG):
            await self._answered.wait()
        return self._id


@pytest.fixture
def at_the_door(crew: MakeCrew, nursery: trio.Nursery, disk: Disk) -> AtTheDoor:
    """A client whose kickoff the disk holds up, while its crew is being taken out."""

    async def come(house: House, *script: str) -> Client:
        client = Client(house)
        disk.stall()
        nursery.start_soon(client.kick_off, *script)
        await wait_all_tasks_blocked()
        nursery.start_soon(
            house.executor.apply_catalog, having(crew("other"))
        )  # it waits for the kickoff
        await wait_all_tasks_blocked()
        return client

    return come


async def test_a_crew_put_back_before_it_is_taken_out_to_the_end_goes_on(
    open_house: OpenHouse, crew: MakeCrew, disk: Disk, at_the_door: AtTheDoor
) -> None:
    house = await open_house(crew())
    client = await at_the_door(house)
    await house.executor.apply_catalog(having(crew()))
    disk.works.set()
    assert (await house.end_of(await client.answer())).state is ExecutionState.SUCCESS
    await wait_all_tasks_blocked()
    assert (await house.end_of(await house.kickoff())).state is ExecutionState.SUCCESS


async def test_what_came_in_as_its_crew_was_taken_out_and_put_back_is_in_its_line(
    open_house: OpenHouse, crew: MakeCrew, disk: Disk, at_the_door: AtTheDoor
) -> None:
    """The end of the crew's last execution let go of the line that this one was to enter."""
    house = await open_house(crew())
    running = await house.kickoff(*WAITS)
    await house.gate.reaches(1)
    client = await at_the_door(house, "started", "hang")
    house.gate.open()
    assert (await house.end_of(running)).state is ExecutionState.SUCCESS
    with trio.fail_after(HANG):
        while house.executor.load()["c"].running > 1:  # the client's has a slot already
            await wait_all_tasks_blocked(0.001)
    await house.executor.apply_catalog(having(crew()))
    disk.works.set()
    await house.reaches(await client.answer(), Status.RUNNING)
    assert house.executor.load() == {"c": CrewLoad(running=1, waiting=0)}
    await house.stop_one(await client.answer())


async def test_a_crew_taken_out_while_somebody_is_at_its_door_leaves_no_line(
    open_house: OpenHouse, crew: MakeCrew, disk: Disk, at_the_door: AtTheDoor
) -> None:
    house = await open_house(crew())
    client = await at_the_door(house)
    disk.works.set()
    assert (await house.end_of(await client.answer())).state is ExecutionState.SUCCESS
    await house.comes_to_rest()
    assert set(house.executor.load()) == {"other"}
