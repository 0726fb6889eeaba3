"""Who may wait for a place: no turn of the loop for one that is free, and none that is lost."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from daemon.supervision.places import take


async def test_a_free_place_is_taken_at_once() -> None:
    places = trio.Semaphore(2)
    others: list[str] = []

    async def other() -> None:
        others.append("ran")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        await take(places)
        await take(places)
        assert others == []  # nobody else has had a turn
    assert places.value == 0


async def test_who_comes_too_late_waits_for_a_place() -> None:
    places = trio.Semaphore(1)
    await take(places)
    taken: list[int] = []

    async def another(number: int) -> None:
        await take(places)
        taken.append(number)

    async with trio.open_nursery() as nursery:
        for number in (1, 2):
            nursery.start_soon(another, number)
            await wait_all_tasks_blocked()
        assert taken == []
        places.release()
        await wait_all_tasks_blocked()
        assert taken == [1]  # the first to come is the first to go
        places.release()
    assert taken == [1, 2]


@pytest.mark.parametrize("free", [0, 1])
async def test_who_is_cancelled_takes_none(free: int) -> None:
    places = trio.Semaphore(free)
    with trio.CancelScope() as scope:
        scope.cancel()
        await take(places)
    assert scope.cancelled_caught
    assert places.value == free
