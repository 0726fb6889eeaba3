"""Whose turn it is: order, limits, room, and crews that do not wait for each other."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio

from smartlinkd.crews.model import CrewLoad
from smartlinkd.crews.scheduler import FULL_RETRY_AFTER
from smartlinkd.errors import Unavailable
from smartlinkd.store.model import Execution, ExecutionState
from tests.hygiene.tasks import all_tasks

if TYPE_CHECKING:
    from tests.crews.executor.conftest import House, MakeCrew, OpenHouse

WAITS = ("started", "call gate", "hear", "result ok")


def resident() -> int:
    """Bytes of memory that this process has."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * 4096


def most_at_once(ran: list[Execution]) -> int:
    moments = [(each.started_at, 1) for each in ran] + [(each.finished_at, -1) for each in ran]
    running = most = 0
    for _, step in sorted(moments, key=lambda moment: (moment[0], moment[1])):
        running += step
        most = max(most, running)
    return most


async def test_two_hundred_are_all_run_in_order_and_leave_nothing(
    open_house: OpenHouse, crew: MakeCrew, trivial: str, in_use: Callable[[], object]
) -> None:
    house = await open_house(crew("c", "/bin/sh", "-c", trivial, max_running=8, queue=200))
    await house.end_of(await house.kickoff())
    await house.comes_to_rest()
    gc.collect()
    before, memory_before = (len(all_tasks()), in_use()), resident()

    ids = [await house.kickoff() for _ in range(200)]
    ran = [await house.end_of(each) for each in ids]

    assert {each.state for each in ran} == {ExecutionState.SUCCESS}
    started = [each.started_at for each in ran]
    assert all(started)
    assert started == sorted(started)  # type: ignore[type-var]
    assert [each.sequence for each in ran] == list(range(2, 202))
    assert 1 < most_at_once(ran) <= 8
    await house.comes_to_rest()
    assert list((house.folder / "runs").iterdir()) == []
    gc.collect()
    assert (len(all_tasks()), in_use()) == before
    assert resident() - memory_before < 20 * 2**20


async def test_never_more_run_than_may(open_house: OpenHouse, crew: MakeCrew) -> None:
    house = await open_house(crew(max_running=3))
    ids = [await house.kickoff(*WAITS) for _ in range(7)]
    await house.gate.reaches(3)
    assert house.executor.load() == {"c": CrewLoad(running=3, waiting=4)}
    states = [(await house.look(each)).state for each in ids]
    assert states == [ExecutionState.RUNNING] * 3 + [ExecutionState.PENDING] * 4
    house.gate.open()
    for each in ids:
        assert (await house.end_of(each)).state is ExecutionState.SUCCESS
    assert house.gate.most_waiting == 3


async def test_crews_do_not_hold_up_each_other(open_house: OpenHouse, crew: MakeCrew) -> None:
    busy = crew("busy", max_running=1, queue=1)
    house = await open_house(busy, crew("idle", max_running=1, queue=1))
    waiting = [await house.kickoff(*WAITS, crew="busy") for _ in range(2)]
    await house.gate.reaches(1)
    assert (
        await house.end_of(await house.kickoff(crew="idle"), "idle")
    ).state is ExecutionState.SUCCESS
    with pytest.raises(Unavailable):
        await house.kickoff(crew="busy")
    house.gate.open()
    for each in waiting:
        await house.end_of(each, "busy")


async def test_a_full_queue_says_so_and_has_room_again(
    open_house: OpenHouse, crew: MakeCrew
) -> None:
    house = await open_house(crew(max_running=1, queue=2))
    running, next_one, _ = [await house.kickoff(*WAITS) for _ in range(3)]
    with pytest.raises(Unavailable, match="the queue of crew c is full, with 2 waiting") as refusal:
        await house.kickoff(*WAITS)
    assert refusal.value.retry_after == FULL_RETRY_AFTER
    assert len(await house.store.unfinished()) == 3

    await house.stop_one(next_one)
    last = await house.kickoff(*WAITS)
    with pytest.raises(Unavailable):
        await house.kickoff(*WAITS)
    house.gate.open()
    for each in (running, last):
        assert (await house.end_of(each)).state is ExecutionState.SUCCESS


async def test_without_a_queue_there_is_room_for_what_runs(
    open_house: OpenHouse, crew: MakeCrew
) -> None:
    house = await open_house(crew(max_running=1, queue=0))
    running = await house.kickoff(*WAITS)
    with pytest.raises(Unavailable):
        await house.kickoff()
    house.gate.open()
    await house.end_of(running)
    assert (await house.end_of(await house.kickoff())).state is ExecutionState.SUCCESS


async def test_kickoffs_at_the_same_moment_do_not_get_past_the_bound(
    open_house: OpenHouse, crew: MakeCrew
) -> None:
    house = await open_house(crew(max_running=2, queue=3))
    ids: list[str] = []
    refused: list[Unavailable] = []

    async def kick_off() -> None:
        try:
            ids.append(await house.kickoff(*WAITS))
        except Unavailable as refusal:
            refused.append(refusal)

    async with trio.open_nursery() as nursery:
        for _ in range(40):
            nursery.start_soon(kick_off)
    assert (len(ids), len(refused)) == (5, 35)
    assert {each.id for each in await house.store.unfinished()} == set(ids)
    house.gate.open()
    for each in ids:
        await house.end_of(each)


async def test_a_fault_of_one_does_not_interrupt_another(house: House) -> None:
    """A bug in a tool ends the execution that called it; the daemon's log has it."""
    waiting = await house.kickoff(*WAITS)
    await house.gate.reaches(1)
    await house.end_of(await house.kickoff("started", "call bug", "hear", "result ok"))
    house.gate.open()
    assert (await house.end_of(waiting)).state is ExecutionState.SUCCESS
