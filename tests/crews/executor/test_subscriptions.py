"""Subscriptions lose no notification, and event streams lose no event."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from smartlinkd.crews.model import CrewUser
from smartlinkd.crews.subscriptions import EVENTS_AT_ONCE, Subscriptions
from smartlinkd.store.model import ExecutionEvent, ExecutionState
from tests.crews.executor.conftest import WAITS, CrewsDaemon, StartDaemon, make_crew

C = CrewUser("c")


async def test_notification_before_the_wait_is_kept_once() -> None:
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


async def test_wait_ends_with_a_change_of_state_and_with_no_other_event(
    start_daemon: StartDaemon,
) -> None:
    daemon = await start_daemon(make_crew(max_running=1))
    running = await daemon.kickoff("started", "call gate", "echo", "log 1", "task a", "exit 1")
    waiting = await daemon.kickoff("started", "hang")
    await daemon.gate.reaches(1)
    seen: dict[str, ExecutionState] = {}

    async def wait(kickoff_id: str) -> None:
        with trio.fail_after(10):
            seen[kickoff_id] = (await daemon.executor.wait(C, kickoff_id, 60)).state

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, running)
        nursery.start_soon(wait, waiting)
        await daemon.all_asked()
        assert (seen, daemon.executor.followers) == ({}, 2)
        daemon.gate.open()
    assert seen == {running: ExecutionState.FAILED, waiting: ExecutionState.RUNNING}
    assert daemon.executor.followers == 0
    await daemon.stop_one(waiting)


async def test_slow_follower_loses_nothing_and_holds_up_nobody(daemon: CrewsDaemon) -> None:
    logs = [f"log {number}" for number in range(EVENTS_AT_ONCE + 50)]
    kickoff_id = await daemon.kickoff("started", *logs, "result ok")
    async with daemon.executor.follow(C, kickoff_id, after=0) as following:
        await daemon.end_of(kickoff_id)
        told: list[ExecutionEvent] = []
        while events := await following.next():
            assert len(events) <= EVENTS_AT_ONCE
            told += events
    assert [event.number for event in told] == list(range(1, EVENTS_AT_ONCE + 53))


@pytest.mark.parametrize("question", ["summary", "events"])
async def test_execution_that_ends_between_two_reads_is_followed_to_its_end(
    start_daemon: StartDaemon, monkeypatch: pytest.MonkeyPatch, question: str
) -> None:
    """Behind the first question, and behind the second."""
    daemon = await start_daemon(make_crew(max_running=1))
    running, waiting = [await daemon.kickoff(*WAITS) for _ in range(2)]
    honest = getattr(daemon.store, question)

    async def end_behind_it(*args: Any, **named: Any) -> Any:
        answer = await honest(*args, **named)
        monkeypatch.undo()
        await daemon.stop_one(waiting)
        return answer

    with trio.fail_after(10):
        async with daemon.executor.follow(C, waiting, after=0) as following:
            monkeypatch.setattr(daemon.store, question, end_behind_it)
            assert [event.type for event in await following.next()] == ["crew_kickoff_failed"]
            assert await following.next() == []
    await daemon.stop_one(running)


async def test_pruned_execution_ends_its_stream(daemon: CrewsDaemon) -> None:
    kickoff_id = await daemon.kickoff()
    await daemon.end_of(kickoff_id)
    async with daemon.executor.follow(C, kickoff_id, after=0) as following:
        assert await following.next()
        far = (await daemon.look(kickoff_id)).created_at.replace(year=9000)
        assert await daemon.store.prune(far) == 1
        assert await following.next() == []
