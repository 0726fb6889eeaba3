"""Results are remembered by age and number; the same work at the same time is done once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.conversion.cache import SingleFlight, TTLCache
from smartlinkd.errors import Invalid, Refused, UpstreamFailed

if TYPE_CHECKING:
    from tests.conversion.conftest import Ask


async def test_a_result_is_remembered_for_its_seconds(mock_clock: MockClock) -> None:
    results = TTLCache[str, int](ttl_s=10, max_size=5)
    results.put("a", 1)
    mock_clock.jump(9.9)
    assert results.get("a") == 1
    mock_clock.jump(0.1)
    assert results.get("a") is None
    assert len(results) == 0


async def test_a_newer_result_takes_the_place_of_an_older_one(mock_clock: MockClock) -> None:
    results = TTLCache[str, int](ttl_s=10, max_size=5)
    results.put("a", 1)
    mock_clock.jump(6)
    results.put("a", 2)
    mock_clock.jump(6)
    assert results.get("a") == 2
    assert len(results) == 1


async def test_looking_at_a_result_does_not_make_it_younger(mock_clock: MockClock) -> None:
    results = TTLCache[str, int](ttl_s=10, max_size=5)
    results.put("a", 1)
    mock_clock.jump(6)
    assert results.get("a") == 1
    mock_clock.jump(6)
    assert results.get("a") is None


async def test_beyond_the_limit_the_least_recently_used_goes() -> None:
    results = TTLCache[str, int](ttl_s=10, max_size=3)
    for number, key in enumerate("abc"):
        results.put(key, number)
    results.get("a")
    results.put("b", 10)
    results.put("d", 3)
    assert [key for key in "abcd" if results.get(key) is not None] == ["a", "b", "d"]
    assert len(results) == 3


@pytest.mark.parametrize(("seconds", "limit"), [(0, 5), (10, 0), (-1, 5)])
async def test_with_no_time_or_no_room_nothing_is_remembered(seconds: float, limit: int) -> None:
    results = TTLCache[str, int](ttl_s=seconds, max_size=limit)
    results.put("a", 1)
    assert len(results) == 0
    assert results.get("a") is None


class Work:
    """Takes a second, then gives how often it was begun, or refuses."""

    def __init__(self, refusal: Refused | None = None) -> None:
        self.begun = 0
        self.cut = 0
        self.refusal = refusal

    async def __call__(self) -> int:
        self.begun += 1
        try:
            await trio.sleep(1)
        except trio.Cancelled:
            self.cut += 1
            raise
        if self.refusal is not None:
            raise self.refusal
        return self.begun


def wanting(shared: SingleFlight[str, int], key: str, work: Work) -> Callable[[], Awaitable[int]]:
    return lambda: shared.run(key, work)


@pytest.fixture
def shared(nursery: trio.Nursery) -> SingleFlight[str, int]:
    return SingleFlight(nursery)


async def test_who_wants_the_same_at_the_same_time_shares_it(
    shared: SingleFlight[str, int], ask: Ask[Any], autojump_clock: MockClock
) -> None:
    work = Work()
    first = ask(wanting(shared, "a", work))
    await trio.sleep(0.5)
    second = ask(wanting(shared, "a", work))
    await trio.sleep(5)
    assert (first.answer, second.answer, work.begun) == (1, 1, 1)
    assert (first.at, second.at) == (1, 1)


async def test_what_is_done_is_done_anew_for_the_next_one(
    shared: SingleFlight[str, int], autojump_clock: MockClock
) -> None:
    work = Work()
    assert await shared.run("a", work) == 1
    assert await shared.run("a", work) == 2


async def test_other_keys_are_other_work(
    shared: SingleFlight[str, int], ask: Ask[Any], autojump_clock: MockClock
) -> None:
    works = {"a": Work(), "b": Work()}
    asked = [ask(wanting(shared, key, work)) for key, work in works.items()]
    await trio.sleep(5)
    assert [one.at for one in asked] == [1, 1]
    assert [work.begun for work in works.values()] == [1, 1]


async def test_a_refusal_is_everybodys_and_is_not_remembered(
    shared: SingleFlight[str, int], ask: Ask[Any], autojump_clock: MockClock
) -> None:
    work = Work(refusal := UpstreamFailed("no"))
    asked = [ask(wanting(shared, "a", work)) for _ in range(3)]
    await trio.sleep(5)
    assert [one.refusal for one in asked] == [refusal] * 3
    work.refusal = None
    assert await shared.run("a", work) == 2


async def test_a_refusal_does_not_grow_with_those_who_raise_it(
    shared: SingleFlight[str, int], autojump_clock: MockClock
) -> None:
    lengths: list[int] = []

    async def want() -> None:
        try:
            await shared.run("a", Work(refusal))
        except Invalid as caught:
            frames, traceback = 0, caught.__traceback__
            while traceback is not None:
                frames, traceback = frames + 1, traceback.tb_next
            lengths.append(frames)

    refusal = Invalid("no")
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(want)
    assert len(set(lengths)) == 1


async def test_the_first_may_leave_and_the_others_get_the_result(
    shared: SingleFlight[str, int], ask: Ask[Any], autojump_clock: MockClock
) -> None:
    work = Work()
    first, second = (ask(wanting(shared, "a", work)) for _ in range(2))
    await trio.sleep(0.5)
    first.leave()
    await second.over.wait()
    assert (second.answer, work.begun, work.cut) == (1, 1, 0)
    assert first.at is None


async def test_work_that_nobody_wants_any_more_is_cancelled(
    shared: SingleFlight[str, int], ask: Ask[Any], autojump_clock: MockClock
) -> None:
    work = Work()
    asked = [ask(wanting(shared, "a", work)) for _ in range(2)]
    await trio.sleep(0.5)
    for one in asked:
        one.leave()
    await wait_all_tasks_blocked()
    assert work.cut == 1


async def test_a_newcomer_does_not_join_work_that_is_being_cancelled(
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


async def test_an_abandoned_piece_of_work_does_not_push_out_its_successor(
    shared: SingleFlight[str, int], ask: Ask[Any], autojump_clock: MockClock
) -> None:
    async def stubborn() -> int:
        try:
            await trio.sleep(1000)
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(0.2)
        return 0

    first = ask(lambda: shared.run("a", stubborn))
    await wait_all_tasks_blocked()
    first.leave()
    await first.over.wait()
    work = Work()
    second = ask(wanting(shared, "a", work))
    await trio.sleep(0.5)  # the abandoned one ends at 0.2
    third = ask(wanting(shared, "a", work))
    await trio.sleep(5)
    assert (second.answer, third.answer, work.begun) == (1, 1, 1)


async def test_what_is_no_refusal_is_a_bug_and_ends_the_owner() -> None:
    async def faulty() -> int:
        raise KeyError("a bug")

    with pytest.RaisesGroup(KeyError):
        async with trio.open_nursery() as nursery:
            await SingleFlight[str, int](nursery).run("a", faulty)
