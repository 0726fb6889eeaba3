"""Store and executor as the tree has them: the one's fault restarts both, and nothing hangs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from smartlinkd.crews.scheduler import INTERRUPTED, Scheduler
from smartlinkd.errors import Unavailable
from smartlinkd.store.model import Change, ExecutionUpdate, Status
from smartlinkd.supervision.child import ChildSpec
from smartlinkd.supervision.policy import Backoff, Strategy
from smartlinkd.supervision.supervisor import Supervisor

if TYPE_CHECKING:
    from tests.crews.executor.conftest import CrewsDaemon, MakeCrew, NewDaemon

WAITS = ("started", "task a", "call gate", "hear", "done a", "result ok")
GRACE = 20.0
"""The executor's time to end in order. A test that needs it has found something that hangs."""


def tree(daemon: CrewsDaemon) -> Supervisor:
    store, executor = daemon.store, daemon.executor
    return Supervisor(
        "crews",
        [
            ChildSpec("journal", store.run, mailbox=store.mailbox),
            ChildSpec(
                "executor",
                executor.run,
                stop=executor.stop_all,
                grace=GRACE,
                mailbox=executor.mailbox,
            ),
        ],
        strategy=Strategy.REST_FOR_ONE,
        backoff=Backoff(first=0.01, longest=0.01),
    )


async def break_journal(daemon: CrewsDaemon) -> None:
    """A question that only a bug would ask."""
    with pytest.raises(Unavailable):
        await daemon.store.record("no-such-id", ExecutionUpdate(Change()))


def restarts(supervisor: Supervisor) -> dict[str, int]:
    return {child.name: child.restarts for child in supervisor.snapshot()}


@pytest.mark.parametrize("on_restart", ["fail", "rerun"])
async def test_store_that_fails_loses_no_execution(
    new_daemon: NewDaemon, crew: MakeCrew, nursery: trio.Nursery, on_restart: str
) -> None:
    daemon = new_daemon(crew(on_restart=on_restart))
    supervisor = tree(daemon)
    await nursery.start(supervisor.run)
    ids = [await daemon.kickoff(*WAITS) for _ in range(5)]
    await daemon.gate.reaches(2)
    with trio.fail_after(GRACE - 1):
        await break_journal(daemon)
        daemon.gate.open()
        ran = [await daemon.end_of(each) for each in ids]
    first = Status.INTERRUPTED if on_restart == "fail" else Status.COMPLETED
    assert [each.status for each in ran] == [first] * 2 + [Status.COMPLETED] * 3
    assert restarts(supervisor) == {"journal": 1, "executor": 1}
    await stopped(supervisor)


async def test_kickoffs_during_a_store_failure_do_not_delay_its_restart(
    new_daemon: NewDaemon, crew: MakeCrew, nursery: trio.Nursery, trivial: str
) -> None:
    """The journal is started again when the executor has ended, so that must not wait for it."""
    crews = [crew(f"c{number}", "/bin/sh", "-c", trivial) for number in range(9)]
    daemon = new_daemon(*crews)
    supervisor = tree(daemon)
    await nursery.start(supervisor.run)
    ids: list[tuple[str, str]] = []

    async def kick_off(name: str) -> None:
        for _ in range(3):
            try:
                ids.append((await daemon.kickoff(crew=name), name))
            except Unavailable:
                continue

    with trio.fail_after(GRACE - 1):
        async with trio.open_nursery() as askers:
            askers.start_soon(break_journal, daemon)
            for each in crews:
                askers.start_soon(kick_off, each.name)
        for kickoff_id, name in ids:
            assert (await daemon.end_of(kickoff_id, name)).state.ended
        await all_ended(daemon)
    assert ids
    assert restarts(supervisor)["journal"] == 1
    await stopped(supervisor)


async def test_executor_that_fails_goes_on_without_a_restart_of_the_store(
    new_daemon: NewDaemon, crew: MakeCrew, nursery: trio.Nursery
) -> None:
    daemon = new_daemon(crew())
    supervisor = tree(daemon)
    await nursery.start(supervisor.run)
    ids = [await daemon.kickoff(*WAITS) for _ in range(3)]
    await daemon.gate.reaches(2)

    async def bug(lines: Scheduler) -> None:
        raise ZeroDivisionError

    with trio.fail_after(GRACE):
        with pytest.raises(Unavailable):
            await daemon.executor.mailbox.ask(bug)
        daemon.gate.open()
        ran = [await daemon.end_of(each) for each in ids]
    assert [each.error for each in ran] == [INTERRUPTED, INTERRUPTED, None]
    assert restarts(supervisor) == {"journal": 0, "executor": 1}
    await stopped(supervisor)


async def test_event_stream_outlives_a_restart_of_the_store(
    new_daemon: NewDaemon, crew: MakeCrew, nursery: trio.Nursery
) -> None:
    daemon = new_daemon(crew(on_restart="rerun"))
    supervisor = tree(daemon)
    await nursery.start(supervisor.run)
    kickoff_id = await daemon.kickoff(*WAITS)
    await daemon.gate.reaches(1)
    told: list[str] = []

    async def follow() -> None:
        async with daemon.executor.follow(daemon.holder, kickoff_id, after=0) as following:
            while events := await following.next():
                told.extend(event.type for event in events)

    with trio.fail_after(GRACE - 1):
        async with trio.open_nursery() as followers:
            followers.start_soon(follow)
            await wait_all_tasks_blocked()
            await break_journal(daemon)
            daemon.gate.open()
    assert told == await daemon.story(kickoff_id)
    assert told.count("crew_kickoff_started") == 2
    assert told[-1] == "crew_kickoff_completed"
    await stopped(supervisor)


async def all_ended(daemon: CrewsDaemon) -> None:
    while left := await daemon.store.unfinished():
        for each in left:
            await daemon.end_of(each.id, each.crew)


async def stopped(supervisor: Supervisor) -> None:
    """End it in order, in less than the grace."""
    supervisor.stop()
    with trio.fail_after(GRACE - 1):
        while {child.state.value for child in supervisor.snapshot()} != {"down"}:  # noqa: ASYNC110
            await trio.sleep(0.005)
