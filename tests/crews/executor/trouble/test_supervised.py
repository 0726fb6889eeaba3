"""Store and executor as the tree has them: the one's fault restarts both, and nothing hangs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from smartlinkd.crews.scheduler import INTERRUPTED, Scheduler
from smartlinkd.errors import Unavailable
from smartlinkd.store.model import Change, ExecutionState, ExecutionUpdate, Status
from smartlinkd.supervision.child import ChildSpec
from smartlinkd.supervision.policy import Backoff, Strategy
from smartlinkd.supervision.supervisor import Supervisor

if TYPE_CHECKING:
    from tests.crews.executor.conftest import House, MakeCrew, NewHouse

WAITS = ("started", "task a", "call gate", "hear", "done a", "result ok")
GRACE = 20.0
"""What the executor has to end in order. A test that needs it has found something that hangs."""


def tree(house: House) -> Supervisor:
    store, executor = house.store, house.executor
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


async def break_journal(house: House) -> None:
    """A question that only a bug would ask."""
    with pytest.raises(Unavailable):
        await house.store.record("no-such-id", ExecutionUpdate(Change()))


def restarts(supervisor: Supervisor) -> dict[str, int]:
    return {child.name: child.restarts for child in supervisor.snapshot()}


@pytest.mark.parametrize("on_restart", ["fail", "rerun"])
async def test_a_journal_that_fails_loses_nothing(
    new_house: NewHouse, crew: MakeCrew, nursery: trio.Nursery, on_restart: str
) -> None:
    house = new_house(crew(on_restart=on_restart))
    supervisor = tree(house)
    await nursery.start(supervisor.run)
    ids = [await house.kickoff(*WAITS) for _ in range(5)]
    await house.gate.reaches(2)
    with trio.fail_after(GRACE - 1):
        await break_journal(house)
        house.gate.open()
        ran = [await house.end_of(each) for each in ids]
    first = Status.INTERRUPTED if on_restart == "fail" else Status.COMPLETED
    assert [each.status for each in ran] == [first] * 2 + [Status.COMPLETED] * 3
    assert restarts(supervisor) == {"journal": 1, "executor": 1}
    await stopped(supervisor)


async def test_kickoffs_that_wait_in_a_failing_journal_do_not_keep_it_down(
    new_house: NewHouse, crew: MakeCrew, nursery: trio.Nursery, trivial: str
) -> None:
    """The journal is started again when the executor has ended, so that must not wait for it."""
    crews = [crew(f"c{number}", "/bin/sh", "-c", trivial) for number in range(9)]
    house = new_house(*crews)
    supervisor = tree(house)
    await nursery.start(supervisor.run)
    ids: list[tuple[str, str]] = []

    async def kick_off(name: str) -> None:
        for _ in range(3):
            try:
                ids.append((await house.kickoff(crew=name), name))
            except Unavailable:
                continue

    with trio.fail_after(GRACE - 1):
        async with trio.open_nursery() as askers:
            askers.start_soon(break_journal, house)
            for each in crews:
                askers.start_soon(kick_off, each.name)
        for kickoff_id, name in ids:
            assert (await house.end_of(kickoff_id, name)).state.ended
        await all_ended(house)
    assert ids
    assert restarts(supervisor)["journal"] == 1
    await stopped(supervisor)


@pytest.mark.parametrize("moment", [Status.RUNNING, Status.COMPLETED])
async def test_a_journal_that_fails_at_an_execution_is_not_waited_for(
    new_house: NewHouse,
    crew: MakeCrew,
    nursery: trio.Nursery,
    monkeypatch: pytest.MonkeyPatch,
    limits: dict[str, Any],
    *,
    moment: Status,
) -> None:
    """Also where no worker is there that could be stopped."""
    limits["last_write_s"] = 0.05
    house = new_house(crew(on_restart="rerun", max_running=1))
    supervisor = tree(house)
    await nursery.start(supervisor.run)
    await house.kickoff(*WAITS)
    await house.gate.reaches(1)
    record = house.store.record
    ids = ["no-such-id"]

    async def break_once(execution_id: str, entry: ExecutionUpdate) -> None:
        broken = entry.change.get("status") is moment and ids
        await record(ids.pop() if broken else execution_id, entry)

    monkeypatch.setattr(house.store, "record", break_once)
    with trio.fail_after(GRACE - 1):
        kickoff_id = await house.kickoff()
        house.gate.open()
        assert (await house.end_of(kickoff_id)).state is ExecutionState.SUCCESS
    assert restarts(supervisor) == {"journal": 1, "executor": 1}
    await stopped(supervisor)


async def test_an_executor_that_fails_goes_on_and_leaves_the_journal_alone(
    new_house: NewHouse, crew: MakeCrew, nursery: trio.Nursery
) -> None:
    house = new_house(crew())
    supervisor = tree(house)
    await nursery.start(supervisor.run)
    ids = [await house.kickoff(*WAITS) for _ in range(3)]
    await house.gate.reaches(2)

    async def bug(lines: Scheduler) -> None:
        raise ZeroDivisionError

    with trio.fail_after(GRACE):
        with pytest.raises(Unavailable):
            await house.executor.mailbox.ask(bug)
        house.gate.open()
        ran = [await house.end_of(each) for each in ids]
    assert [each.error for each in ran] == [INTERRUPTED, INTERRUPTED, None]
    assert restarts(supervisor) == {"journal": 0, "executor": 1}
    await stopped(supervisor)


async def test_who_asks_during_a_restart_is_answered(
    new_house: NewHouse, crew: MakeCrew, nursery: trio.Nursery
) -> None:
    house = new_house(crew(on_restart="rerun"))
    supervisor = tree(house)
    await nursery.start(supervisor.run)
    kickoff_id = await house.kickoff(*WAITS)
    await house.gate.reaches(1)
    with trio.fail_after(GRACE - 1):
        await break_journal(house)
        assert (await house.look(kickoff_id)).state is not ExecutionState.FAILED
        other = await house.kickoff()
        house.gate.open()
        assert (await house.end_of(kickoff_id)).state is ExecutionState.SUCCESS
        assert (await house.end_of(other)).state is ExecutionState.SUCCESS
    await stopped(supervisor)


async def test_followers_outlive_a_restart(
    new_house: NewHouse, crew: MakeCrew, nursery: trio.Nursery
) -> None:
    house = new_house(crew(on_restart="rerun"))
    supervisor = tree(house)
    await nursery.start(supervisor.run)
    kickoff_id = await house.kickoff(*WAITS)
    await house.gate.reaches(1)
    told: list[str] = []

    async def follow() -> None:
        async with house.executor.follow(house.holder, kickoff_id, after=0) as following:
            while events := await following.next():
                told.extend(event.type for event in events)

    with trio.fail_after(GRACE - 1):
        async with trio.open_nursery() as followers:
            followers.start_soon(follow)
            await wait_all_tasks_blocked()
            await break_journal(house)
            house.gate.open()
    assert told == await house.story(kickoff_id)
    assert told.count("crew_kickoff_started") == 2
    assert told[-1] == "crew_kickoff_completed"
    await stopped(supervisor)


async def all_ended(house: House) -> None:
    while left := await house.store.unfinished():
        for each in left:
            await house.end_of(each.id, each.crew)


async def stopped(supervisor: Supervisor) -> None:
    """End it in order, in less than the grace."""
    supervisor.stop()
    with trio.fail_after(GRACE - 1):
        while {child.state.value for child in supervisor.snapshot()} != {"down"}:  # noqa: ASYNC110
            await trio.sleep(0.005)
