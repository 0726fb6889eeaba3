"""How many workers come up at the same time. Nothing here takes time: the clock jumps."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from daemon.crews.starts import SILENCE, ComingUp, Starts


class Herd:
    """Workers that come up, by name, each for as long as it is not told to be up or to end."""

    def __init__(self, nursery: trio.Nursery, *, most: int) -> None:
        self.begun: list[str] = []
        self.coming: dict[str, ComingUp] = {}
        self._ends: dict[str, trio.Event] = {}
        self._scopes: dict[str, trio.CancelScope] = {}
        self._starts = Starts(most)
        self._nursery = nursery

    async def ask(self, *names: str, crew: str = "c") -> None:
        for name in names:
            self._ends[name], self._scopes[name] = trio.Event(), trio.CancelScope()
            self._nursery.start_soon(self._come_up, name, crew)
            await wait_all_tasks_blocked()

    async def end(self, name: str) -> None:
        self._ends[name].set()
        await wait_all_tasks_blocked()

    async def cancel(self, name: str) -> None:
        self._scopes[name].cancel()
        await wait_all_tasks_blocked()

    async def is_up(self, name: str) -> None:
        self.coming[name].is_up()
        await wait_all_tasks_blocked()

    async def _come_up(self, name: str, crew: str) -> None:
        with self._scopes[name]:
            async with self._starts.one(crew) as coming:
                self.begun.append(name)
                self.coming[name] = coming
                await self._ends[name].wait()


async def test_so_many_come_up_and_the_next_when_one_is_up(
    nursery: trio.Nursery, mock_clock: MockClock
) -> None:
    herd = Herd(nursery, most=2)
    await herd.ask("a", "b", "c", "d")
    assert herd.begun == ["a", "b"]
    await herd.is_up("b")
    assert herd.begun == ["a", "b", "c"]
    assert mock_clock.current_time() == 0


async def test_one_of_each_crew_may_always_come_up(
    nursery: trio.Nursery, mock_clock: MockClock
) -> None:
    herd = Herd(nursery, most=2)
    await herd.ask("a", "b", "c")
    await herd.ask("d", "e", crew="other")
    assert herd.begun == ["a", "b", "d"]
    await herd.is_up("a")  # of three that were coming, which was one too many
    assert herd.begun == ["a", "b", "d"]
    await herd.is_up("d")
    assert "e" in herd.begun  # and "c", if it was quicker
    assert mock_clock.current_time() == 0


async def test_that_one_is_up_counts_once(nursery: trio.Nursery, mock_clock: MockClock) -> None:
    herd = Herd(nursery, most=1)
    await herd.ask("a", "b", "c")
    await herd.is_up("a")
    await herd.is_up("a")
    await herd.end("a")
    assert herd.begun == ["a", "b"]
    assert mock_clock.current_time() == 0


async def test_the_next_begins_when_one_has_ended(
    nursery: trio.Nursery, mock_clock: MockClock
) -> None:
    herd = Herd(nursery, most=1)
    await herd.ask("a", "b", "c")
    await herd.end("a")
    assert herd.begun == ["a", "b"]
    await herd.cancel("b")
    assert herd.begun == ["a", "b", "c"]
    assert mock_clock.current_time() == 0


async def test_who_says_nothing_is_waited_for_no_longer_than_that(
    nursery: trio.Nursery, mock_clock: MockClock
) -> None:
    herd = Herd(nursery, most=2)
    await herd.ask("a")
    mock_clock.jump(1.0)
    await herd.ask("b", "c", "d", "e")
    mock_clock.jump(SILENCE - 1.5)
    await wait_all_tasks_blocked()
    assert herd.begun == ["a", "b"]
    mock_clock.jump(0.5)  # `a` has had its time
    await wait_all_tasks_blocked()
    assert herd.begun == ["a", "b", "c"]
    mock_clock.jump(1.0)  # and `b`
    await wait_all_tasks_blocked()
    assert herd.begun == ["a", "b", "c", "d"]
    await herd.is_up("a")  # at last, which is no reason for one more
    assert herd.begun == ["a", "b", "c", "d"]
    await herd.is_up("c")
    assert herd.begun == ["a", "b", "c", "d", "e"]


@pytest.mark.parametrize("leaves", ["b", "c"])
async def test_who_waits_and_leaves_is_no_longer_in_the_way(
    nursery: trio.Nursery, mock_clock: MockClock, leaves: str
) -> None:
    herd = Herd(nursery, most=1)
    await herd.ask("a", "b", "c", "d")
    await herd.cancel(leaves)
    stays = {"b": "c", "c": "b"}[leaves]
    await herd.is_up("a")
    await herd.is_up(stays)
    assert herd.begun == ["a", stays, "d"]
    assert mock_clock.current_time() == 0


async def test_who_leaves_in_the_moment_of_its_turn_takes_nobodys_place(
    nursery: trio.Nursery, mock_clock: MockClock
) -> None:
    herd = Herd(nursery, most=1)
    await herd.ask("a", "b", "c")
    herd.coming["a"].is_up()
    await herd.cancel("b")
    await herd.cancel("a")
    assert herd.begun[-1] == "c"
    assert mock_clock.current_time() == 0
