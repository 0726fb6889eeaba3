"""Results are remembered by age and number; the same work at the same time is done once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock

from smartlinkd.conversion.cache import SingleFlight, TTLCache
from smartlinkd.errors import Refused, UpstreamFailed

if TYPE_CHECKING:
    from tests.conversion.conftest import Ask


async def test_least_recently_used_result_is_evicted() -> None:
    results = TTLCache[str, int](ttl_s=10, max_size=3)
    for number, key in enumerate("abc"):
        results.put(key, number)
    results.get("a")
    results.put("b", 10)
    results.put("d", 3)
    assert [key for key in "abcd" if results.get(key) is not None] == ["a", "b", "d"]
    assert len(results) == 3


class Work:
    """Takes a second, then gives how often it was begun, or refuses."""

    def __init__(self, refusal: Refused | None = None) -> None:
        self.begun = 0
        self.refusal = refusal

    async def __call__(self) -> int:
        self.begun += 1
        await trio.sleep(1)
        if self.refusal is not None:
            raise self.refusal
        return self.begun


def wanting(shared: SingleFlight[str, int], key: str, work: Work) -> Callable[[], Awaitable[int]]:
    return lambda: shared.run(key, work)


@pytest.fixture
def shared(nursery: trio.Nursery) -> SingleFlight[str, int]:
    return SingleFlight(nursery)


async def test_refusal_is_raised_for_all_and_not_remembered(
    shared: SingleFlight[str, int], ask: Ask[Any], autojump_clock: MockClock
) -> None:
    work = Work(refusal := UpstreamFailed("no"))
    asked = [ask(wanting(shared, "a", work)) for _ in range(3)]
    await trio.sleep(5)
    assert [one.refusal for one in asked] == [refusal] * 3
    work.refusal = None
    assert await shared.run("a", work) == 2


async def test_cancelled_work_is_not_joined(
    shared: SingleFlight[str, int], ask: Ask[Any], autojump_clock: MockClock
) -> None:
    work = Work()
    first = ask(wanting(shared, "a", work))
    await trio.sleep(0.5)
    first.leave()
    await first.over.wait()  # the work itself has not ended by then
    assert await shared.run("a", work) == 2
    # What was abandoned has not taken the newcomer's place with it.
    assert work.begun == 2


async def test_bug_in_shared_work_ends_the_nursery() -> None:
    async def faulty() -> int:
        raise KeyError("a bug")

    with pytest.RaisesGroup(KeyError):
        async with trio.open_nursery() as nursery:
            await SingleFlight[str, int](nursery).run("a", faulty)
