"""EventStream: bells that lose no ring, and events that come whole however slowly they are read."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from smartlinkd.crews.model import CrewUser
from smartlinkd.crews.subscriptions import EVENTS_AT_ONCE, MAX_SUBSCRIPTIONS, Subscriptions
from smartlinkd.errors import NotFound, Unavailable
from smartlinkd.store.model import ExecutionEvent, ExecutionState

if TYPE_CHECKING:
    from tests.crews.executor.conftest import House, MakeCrew, OpenHouse

C = CrewUser("c")
WAITS = ("started", "call gate", "hear", "result ok")


# Subscriptions


async def test_a_bell_rings_for_its_execution_alone() -> None:
    bells = Subscriptions()
    with bells.subscribe("one") as one, bells.subscribe("two") as two:
        bells.notify("one", ExecutionState.RUNNING)
        await one.wait()
        assert (one.state, two.state) == (ExecutionState.RUNNING, None)


async def test_a_ring_before_the_wait_is_not_lost_and_counts_once() -> None:
    bells = Subscriptions()
    with bells.subscribe("one") as bell:
        for state in (ExecutionState.PENDING, ExecutionState.RUNNING, ExecutionState.SUCCESS):
            bells.notify("one", state)
        await bell.wait()
        assert bell.state is ExecutionState.SUCCESS
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bell.wait)
            await wait_all_tasks_blocked()
            assert len(nursery.child_tasks) == 1
            nursery.cancel_scope.cancel()


def test_so_many_may_follow_and_no_more() -> None:
    bells = Subscriptions()
    with ExitStack() as hung:
        for number in range(MAX_SUBSCRIPTIONS):
            hung.enter_context(bells.subscribe(str(number % 3)))
        with pytest.raises(Unavailable, match="512 clients"), bells.subscribe("1"):
            pass
        assert bells.count == MAX_SUBSCRIPTIONS
    assert bells.count == 0
    with bells.subscribe("1"):
        assert bells.count == 1


# Waiting


async def test_who_waits_is_woken_by_the_change_of_state(
    open_house: OpenHouse, crew: MakeCrew
) -> None:
    house = await open_house(crew(max_running=1))
    await house.kickoff(*WAITS)
    waiting = await house.kickoff("started", "hang")
    await house.gate.reaches(1)
    seen: list[ExecutionState] = []

    async def wait() -> None:
        with trio.fail_after(10):
            seen.append((await house.executor.wait(C, waiting, 60)).state)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        assert (seen, house.executor.followers) == ([], 1)
        house.gate.open()
    assert (seen, house.executor.followers) == ([ExecutionState.RUNNING], 0)
    await house.stop_one(waiting)


async def test_news_that_change_no_state_wake_nobody_who_waits_for_it(house: House) -> None:
    kickoff_id = await house.kickoff("started", "call gate", "hear", "log 1", "task a", "exit 1")
    await house.gate.reaches(1)
    ended: list[ExecutionState] = []

    async def wait() -> None:
        ended.append((await house.executor.wait(C, kickoff_id, 60)).state)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        house.gate.open()
    assert ended == [ExecutionState.FAILED]


async def test_a_wait_has_its_time(house: House) -> None:
    kickoff_id = await house.kickoff(*WAITS)
    await house.gate.reaches(1)
    with trio.fail_after(5):
        answer = await house.executor.wait(C, kickoff_id, 0.01)
    assert answer.state is ExecutionState.RUNNING


async def test_one_that_has_ended_is_told_at_once(house: House) -> None:
    kickoff_id = await house.kickoff()
    await house.end_of(kickoff_id)
    with trio.fail_after(5):
        assert (await house.executor.wait(C, kickoff_id, 1000)).state is ExecutionState.SUCCESS


async def test_one_that_there_is_not_leaves_no_bell(house: House) -> None:
    with pytest.raises(NotFound):
        await house.executor.wait(C, "no-such-id", 1)
    with pytest.raises(NotFound):
        async with house.executor.follow(C, "no-such-id", after=0):
            pass
    assert house.executor.followers == 0


async def test_who_goes_away_leaves_no_bell(house: House) -> None:
    kickoff_id = await house.kickoff(*WAITS)
    await house.gate.reaches(1)

    async def follow() -> None:
        async with house.executor.follow(C, kickoff_id, after=0) as following:
            while await following.next():
                pass

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(follow)
            nursery.start_soon(house.executor.wait, C, kickoff_id, 60)
        await wait_all_tasks_blocked()
        assert house.executor.followers == 40
        nursery.cancel_scope.cancel()
    assert house.executor.followers == 0


# EventStream


async def test_events_come_as_they_happen_and_end_with_it(house: House) -> None:
    kickoff_id = await house.kickoff("started", "log 1", "call gate", "hear", "result ok")
    types: list[str] = []
    with trio.fail_after(10):
        async with house.executor.follow(C, kickoff_id, after=0) as following:
            while events := await following.next():
                types += [event.type for event in events]
                if "tool_usage_started" in types:
                    house.gate.open()
    assert types == await house.story(kickoff_id)
    assert types[-1] == "crew_kickoff_completed"


async def test_who_comes_back_gets_what_came_since(house: House) -> None:
    kickoff_id = await house.kickoff("started", "log 1", "log 2", "result ok")
    await house.end_of(kickoff_id)
    async with house.executor.follow(C, kickoff_id, after=2) as following:
        assert [event.number for event in await following.next()] == [3, 4]
        assert await following.next() == []
    async with house.executor.follow(C, kickoff_id, after=99) as following:
        assert await following.next() == []


async def test_a_slow_follower_loses_nothing_and_holds_up_nobody(house: House) -> None:
    logs = [f"log {number}" for number in range(EVENTS_AT_ONCE + 50)]
    kickoff_id = await house.kickoff("started", *logs, "result ok")
    async with house.executor.follow(C, kickoff_id, after=0) as following:
        await house.end_of(kickoff_id)
        told: list[ExecutionEvent] = []
        while events := await following.next():
            assert len(events) <= EVENTS_AT_ONCE
            told += events
    assert [event.number for event in told] == list(range(1, EVENTS_AT_ONCE + 53))


@pytest.mark.parametrize("question", ["summary", "events"])
async def test_one_that_ends_between_the_questions_is_told_to_its_end(
    open_house: OpenHouse, crew: MakeCrew, monkeypatch: pytest.MonkeyPatch, question: str
) -> None:
    """Behind the first question, and behind the second."""
    house = await open_house(crew(max_running=1))
    running, waiting = [await house.kickoff(*WAITS) for _ in range(2)]
    honest = getattr(house.store, question)

    async def end_behind_it(*args: Any, **named: Any) -> Any:
        answer = await honest(*args, **named)
        monkeypatch.undo()
        await house.stop_one(waiting)
        return answer

    with trio.fail_after(10):
        async with house.executor.follow(C, waiting, after=0) as following:
            monkeypatch.setattr(house.store, question, end_behind_it)
            assert [event.type for event in await following.next()] == ["crew_kickoff_failed"]
            assert await following.next() == []
    await house.stop_one(running)


async def test_one_that_was_forgotten_ends_the_stream(house: House) -> None:
    kickoff_id = await house.kickoff()
    await house.end_of(kickoff_id)
    async with house.executor.follow(C, kickoff_id, after=0) as following:
        assert await following.next()
        far = (await house.look(kickoff_id)).created_at.replace(year=9000)
        assert await house.store.prune(far) == 1
        assert await following.next() == []
