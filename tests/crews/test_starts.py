"""How many workers come up at the same time. Nothing here takes time: the clock jumps."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.crews import starts
from smartlinkd.crews.starts import LOOK_EVERY, SILENCE, ComingUp, Starts


class Herd:
    """Workers that come up, and how often it was made known that there may be room."""

    def __init__(self) -> None:
        self.known = 0
        self.starts = Starts(self._count)

    def begin(self, crew: str = "c") -> ComingUp:
        return self.starts.begin(crew)

    def _count(self) -> None:
        self.known += 1


@pytest.fixture(autouse=True)
def two_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starts, "MOST", 2)


@pytest.fixture
async def herd(nursery: trio.Nursery) -> Herd:
    herd = Herd()
    nursery.start_soon(herd.starts.let_be)
    await wait_all_tasks_blocked()
    return herd


async def passes(mock_clock: MockClock, seconds: float) -> None:
    """Time, look by look."""
    await wait_all_tasks_blocked()
    for _ in range(round(seconds / LOOK_EVERY)):
        mock_clock.jump(LOOK_EVERY)
        await wait_all_tasks_blocked()


async def test_so_many_come_up_and_the_next_when_one_is_up(herd: Herd) -> None:
    first, _ = herd.begin(), herd.begin()
    assert not herd.starts.has_room("c")
    assert herd.known == 0
    first.up()
    assert herd.starts.has_room("c")
    assert herd.known == 1


async def test_one_of_each_crew_may_always_come_up(herd: Herd) -> None:
    first, _ = herd.begin(), herd.begin()
    assert herd.starts.has_room("other")
    herd.begin("other")
    assert not herd.starts.has_room("other")
    first.up()  # of three that were coming, which was one too many
    assert not herd.starts.has_room("c")
    assert not herd.starts.has_room("other")
    assert herd.starts.has_room("third")
    assert (herd.starts.of("c"), herd.starts.of("other"), herd.starts.of("third")) == (1, 1, 0)


async def test_that_one_is_up_counts_once(herd: Herd) -> None:
    first, _ = herd.begin(), herd.begin()
    first.up()
    first.up()
    herd.begin()
    assert herd.known == 1
    assert not herd.starts.has_room("c")


async def test_who_works_in_silence_is_waited_for_no_longer_than_that(
    herd: Herd, mock_clock: MockClock
) -> None:
    herd.begin()
    await passes(mock_clock, 1.0)
    herd.begin()
    await passes(mock_clock, SILENCE - 1.0 - LOOK_EVERY)
    assert herd.known == 0
    await passes(mock_clock, LOOK_EVERY)
    assert herd.known == 1  # the first has had its time
    herd.begin()
    await passes(mock_clock, 1.0 - LOOK_EVERY)
    assert herd.known == 1
    await passes(mock_clock, LOOK_EVERY)
    assert herd.known == 2  # and the second
