"""The next start goes on with what the one before has left, and nothing is forgotten."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
import trio

from smartlinkd.crews.catalog.catalog import Catalog
from smartlinkd.crews.execution import RunningExecution
from smartlinkd.crews.model import BrokenCrew, CrewLoad, ExecutorLimits
from smartlinkd.crews.scheduler import INTERRUPTED, NEVER_RUN, NO_CREW, Scheduler
from smartlinkd.errors import Invalid, Unavailable
from smartlinkd.store.actor import Store
from smartlinkd.store.database import StoreDatabase
from smartlinkd.store.model import (
    ExecutionState,
    ExecutionUpdate,
    Status,
    StoreLimits,
    WebhookTarget,
)

if TYPE_CHECKING:
    from tests.crews.executor.conftest import MakeCrew, OpenHouse

HANG = 20.0  # seconds; what takes that long hangs
MAX_RERUNS = ExecutorLimits().max_reruns
WAITS = ("started", "task a", "call gate", "hear", "done a", "task b", "done b", "result ok")


@pytest.fixture(params=["stop", "kill"])
def ends(request: pytest.FixtureRequest) -> str:
    """How the daemon ends: in order, or in the midst of all."""
    return str(request.param)


async def test_what_was_running_is_interrupted_and_what_waited_is_run(
    open_house: OpenHouse, crew: MakeCrew, ends: str
) -> None:
    house = await open_house(crew(max_running=2))
    webhooks = (WebhookTarget("crew", "https://example.com/"),)
    done = await house.kickoff()
    ended_before = await house.end_of(done)
    ids = [await house.kickoff(*WAITS, webhooks=webhooks) for _ in range(6)]
    await house.gate.reaches(2)
    await getattr(house, ends)()
    assert list((house.folder / "runs").iterdir()) == []

    house = await open_house(crew(max_running=1))
    house.gate.open()
    ran = [await house.end_of(each) for each in ids]
    assert [each.status for each in ran] == [Status.INTERRUPTED] * 2 + [Status.COMPLETED] * 4
    assert {each.error for each in ran[:2]} == {INTERRUPTED}
    assert {each.state for each in ran[:2]} == {ExecutionState.FAILED}
    started = [each.started_at for each in ran[2:]]
    assert all(started)
    assert started == sorted(started)  # type: ignore[type-var]
    assert await house.look(done) == ended_before
    assert len(house.owed()) == 6
    assert (await house.story(ids[0]))[-1] == "crew_kickoff_failed"


async def test_what_was_running_is_run_again_where_its_crew_says_so(
    open_house: OpenHouse, crew: MakeCrew, ends: str
) -> None:
    again = crew(on_restart="rerun", max_running=2)
    house = await open_house(again)
    ids = [await house.kickoff(*WAITS) for _ in range(3)]
    await house.gate.reaches(2)
    await getattr(house, ends)()

    house = await open_house(again)
    await house.gate.reaches(2)
    assert house.executor.load() == {"c": CrewLoad(running=2, waiting=1)}
    first = await house.look(ids[0])
    assert (first.state, first.completed_tasks, first.current_task) == (
        ExecutionState.RUNNING,
        0,
        "task a",
    )
    house.gate.open()
    for each in ids:
        end = await house.end_of(each)
        assert end.status is Status.COMPLETED
        assert [task.task_id for task in end.tasks] == ["a", "b"]
    story = await house.story(ids[0])
    assert story.count("crew_kickoff_started") == 2
    assert story.count("crew_execution_requeued") == 1
    assert (await house.story(ids[2])).count("crew_execution_requeued") == 0


@pytest.mark.parametrize("waits", [True, False])
async def test_one_that_was_being_stopped_is_stopped_whoever_still_waits_for_that(
    open_house: OpenHouse, crew: MakeCrew, nursery: trio.Nursery, *, waits: bool
) -> None:
    again = crew(on_restart="rerun", grace=1.0)
    house = await open_house(again)
    kickoff_id = await house.kickoff("started", "deaf", "call gate", "hang")
    await house.gate.reaches(1)
    asked = trio.CancelScope()

    @nursery.start_soon
    async def stop() -> None:
        with asked, suppress(Unavailable):
            await house.stop_one(kickoff_id)

    await house.all_asked()
    if not waits:
        asked.cancel()
    await house.stop()

    house = await open_house(again)
    assert (await house.look(kickoff_id)).status is Status.STOPPED
    assert "crew_execution_requeued" not in await house.story(kickoff_id)


async def test_one_whose_time_was_over_is_over_though_the_daemon_ends(
    open_house: OpenHouse, crew: MakeCrew
) -> None:
    again = crew(on_restart="rerun", deadline=0.5, grace=1.0)
    house = await open_house(again)
    kickoff_id = await house.kickoff("started", "deaf", "call gate", "hang")
    await house.gate.reaches(1)
    await house.gate.reaches(0)  # its tool is cancelled: its time is over, its worker's is not
    await house.stop()

    house = await open_house(again)
    assert (await house.look(kickoff_id)).status is Status.TIMED_OUT


async def test_nor_is_that_forgotten_while_its_worker_is_still_being_started(
    open_house: OpenHouse, crew: MakeCrew, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To let go of a start that hangs takes some seconds, and that is when the daemon ends."""
    again = crew(on_restart="rerun", deadline=0.2)
    leaving, left = trio.Event(), trio.Event()

    @asynccontextmanager
    async def hangs(*_args: Any, **_named: Any) -> AsyncIterator[None]:
        try:
            await trio.Event().wait()
            yield
        finally:
            with trio.CancelScope(shield=True):
                leaving.set()
                await left.wait()

    house = await open_house(again)
    with monkeypatch.context() as patch:
        patch.setattr("smartlinkd.crews.execution.start_worker", hangs)
        kickoff_id = await house.kickoff(*WAITS)
        await leaving.wait()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(house.stop)
            await house.all_asked()
            left.set()

    house = await open_house(again)
    assert (await house.look(kickoff_id)).status is Status.TIMED_OUT


async def test_one_that_was_stopped_before_its_turn_is_stopped_though_the_daemon_ends(
    open_house: OpenHouse,
    crew: MakeCrew,
    nursery: trio.Nursery,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The journal refuses to take it down at first."""
    house = await open_house(crew(max_running=1))
    await house.kickoff(*WAITS)
    await house.gate.reaches(1)
    kickoff_id = await house.kickoff(*WAITS)
    record, refused = house.store.record, trio.Event()

    async def refuses_once(*args: Any, **named: Any) -> Any:
        if args[0] == kickoff_id and not refused.is_set():
            refused.set()
            raise Unavailable("not now", retry_after=1)
        return await record(*args, **named)

    monkeypatch.setattr(house.store, "record", refuses_once)

    @nursery.start_soon
    async def stop() -> None:
        with suppress(Unavailable):
            await house.stop_one(kickoff_id)

    await refused.wait()
    await house.stop()

    house = await open_house(crew())
    assert (await house.look(kickoff_id)).status is Status.STOPPED


async def test_one_about_which_a_human_was_asked_is_asked_again(
    open_house: OpenHouse, crew: MakeCrew
) -> None:
    again = crew(on_restart="rerun")
    house = await open_house(again)
    kickoff_id = await house.kickoff("started", "task a", "ask a", "hear", "done a", "result ok")
    await house.reaches(kickoff_id, Status.WAITING_FOR_HUMAN_INPUT)
    await house.kill()

    house = await open_house(again)
    while (await house.story(kickoff_id)).count("human_input_requested") < 2:  # noqa: ASYNC110
        await trio.sleep(0.01)
    assert (await house.resume(kickoff_id)).state is not ExecutionState.FAILED
    assert (await house.end_of(kickoff_id)).state is ExecutionState.SUCCESS


async def test_it_is_not_run_again_for_ever(open_house: OpenHouse, crew: MakeCrew) -> None:
    again = crew(on_restart="rerun")
    house = await open_house(again)
    kickoff_id = await house.kickoff(*WAITS)
    for _ in range(MAX_RERUNS):
        await house.gate.reaches(1)
        await house.kill()
        house = await open_house(again)
    await house.gate.reaches(1)
    await house.kill()

    house = await open_house(again)
    end = await house.end_of(kickoff_id)
    assert (end.status, end.error) == (
        Status.INTERRUPTED,
        f"{INTERRUPTED}, as in {MAX_RERUNS} runs before",
    )
    assert (await house.story(kickoff_id)).count("crew_execution_requeued") == MAX_RERUNS


async def test_one_that_has_no_room_for_another_run_is_interrupted(
    open_house: OpenHouse, crew: MakeCrew
) -> None:
    """It has said as much as one execution may: the daemon must not fail at it."""
    again = crew(on_restart="rerun")
    house = await open_house(again)
    kickoff_id = await house.kickoff(*WAITS)
    await house.gate.reaches(1)
    await house.kill()

    house = await open_house(again, store_limits=StoreLimits(events=3))
    end = await house.end_of(kickoff_id)
    assert end.status is Status.INTERRUPTED
    assert end.error == (
        f"{INTERRUPTED}, and cannot be run again: events: more than 3 in one execution; end it"
    )


async def test_those_of_a_crew_that_is_gone_are_ended(
    open_house: OpenHouse, crew: MakeCrew
) -> None:
    house = await open_house(crew("old", max_running=1), crew("c"))
    ids = [await house.kickoff(*WAITS, crew="old") for _ in range(3)]
    await house.gate.reaches(1)
    await house.kill()

    house = await open_house(crew("c"))
    why = [f"{INTERRUPTED}, and {NO_CREW}", NEVER_RUN, NEVER_RUN]  # the first one had begun
    for each, error in zip(ids, why, strict=True):
        end = await house.end_of(each, "old")
        assert (end.status, end.error) == (Status.INTERRUPTED, error)
    with pytest.raises(Invalid):
        await house.stop_one(ids[0], crew="old")
    assert (await house.end_of(await house.kickoff())).state is ExecutionState.SUCCESS


async def test_those_of_a_broken_crew_wait_until_it_is_mended(
    open_house: OpenHouse, crew: MakeCrew
) -> None:
    house = await open_house(crew("old", max_running=1))
    begun, stopped, waits = [await house.kickoff(*WAITS, crew="old") for _ in range(3)]
    await house.gate.reaches(1)
    await house.kill()

    house = await open_house(broken=(BrokenCrew("old", ()),))
    assert (await house.end_of(begun, "old")).error == INTERRUPTED
    await house.stop_one(stopped, crew="old")
    assert (await house.end_of(stopped, "old")).status is Status.STOPPED
    with pytest.raises(Invalid):
        await house.stop_one(stopped, crew="old")
    assert (await house.look(waits, "old")).state is ExecutionState.PENDING
    await house.stop()

    house = await open_house(crew("old"))
    house.gate.open()
    assert (await house.end_of(waits, "old")).state is ExecutionState.SUCCESS


async def test_those_of_a_broken_crew_that_runs_them_again_wait_as_well(
    open_house: OpenHouse, crew: MakeCrew
) -> None:
    again = crew("old", on_restart="rerun", max_running=2)
    house = await open_house(again)
    ids = [await house.kickoff(*WAITS, crew="old") for _ in range(3)]
    await house.gate.reaches(2)
    await house.kill()

    broken = BrokenCrew("old", (), on_restart="rerun")
    house = await open_house(broken=(broken,))
    await house.stop_one(ids[0], crew="old")
    assert (await house.end_of(ids[0], "old")).status is Status.STOPPED
    assert [(await house.look(each, "old")).state for each in ids[1:]] == [
        ExecutionState.PENDING
    ] * 2
    house.gate.open()
    await house.executor.apply_catalog(Catalog({"old": again}))
    for each in ids[1:]:
        assert (await house.end_of(each, "old")).state is ExecutionState.SUCCESS
    assert (await house.story(ids[1])).count("crew_execution_requeued") == 1


async def test_those_of_a_broken_crew_are_ended_when_it_is_taken_out(
    open_house: OpenHouse, crew: MakeCrew
) -> None:
    house = await open_house(crew("old", on_restart="rerun"))
    kickoff_id = await house.kickoff(*WAITS, crew="old")
    await house.gate.reaches(1)
    await house.kill()

    house = await open_house(broken=(BrokenCrew("old", (), on_restart="rerun"),))
    await house.executor.apply_catalog(Catalog({}))
    assert (await house.end_of(kickoff_id, "old")).error == NEVER_RUN


async def test_new_kickoffs_come_after_what_was_left(open_house: OpenHouse, crew: MakeCrew) -> None:
    one = crew(max_running=1, on_restart="rerun")
    house = await open_house(one)
    left = [await house.kickoff(*WAITS) for _ in range(3)]
    await house.gate.reaches(1)
    await house.stop()

    house = await open_house(one)
    new = await house.kickoff(*WAITS)
    house.gate.open()
    ran = [await house.end_of(each) for each in (*left, new)]
    started = [each.started_at for each in ran]
    assert all(started)
    assert started == sorted(started)  # type: ignore[type-var]


async def test_a_kickoff_finds_the_queue_as_full_as_it_was(
    open_house: OpenHouse, crew: MakeCrew
) -> None:
    one = crew(max_running=1, queue=2, on_restart="rerun")
    house = await open_house(one)
    left = [await house.kickoff(*WAITS) for _ in range(3)]
    await house.stop()

    house = await open_house(one)
    with pytest.raises(Exception, match="is full, with 2 waiting"):
        await house.kickoff()
    house.gate.open()
    for each in left:
        assert (await house.end_of(each)).state is ExecutionState.SUCCESS


async def test_one_is_stopped_while_it_is_being_recovered(
    open_house: OpenHouse, crew: MakeCrew
) -> None:
    one = crew(max_running=1, on_restart="rerun")
    house = await open_house(one)
    left = [await house.kickoff(*WAITS) for _ in range(3)]
    await house.gate.reaches(1)
    await house.kill()

    house = await open_house(one)
    async with trio.open_nursery() as nursery:
        for each in left:
            nursery.start_soon(house.stop_one, each)
    for each in left:
        assert (await house.look(each)).status is Status.STOPPED
    assert house.executor.load() == {"c": CrewLoad(running=0, waiting=0)}


async def test_a_stop_of_one_that_is_being_interrupted_is_told_so(
    open_house: OpenHouse, crew: MakeCrew
) -> None:
    house = await open_house(crew(max_running=8))
    left = [await house.kickoff(*WAITS) for _ in range(8)]
    await house.gate.reaches(8)
    await house.kill()

    house = await open_house(crew())
    for each in left:
        with pytest.raises(Invalid, match=r"ended already|ended by itself"):
            await house.stop_one(each)
        assert (await house.look(each)).status is Status.INTERRUPTED


async def test_nor_is_one_told_as_stopped_that_is_interrupted_without_a_crew(
    open_house: OpenHouse,
    crew: MakeCrew,
    nursery: trio.Nursery,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    house = await open_house(crew("old"))
    kickoff_id = await house.kickoff(*WAITS, crew="old")
    await house.gate.reaches(1)
    await house.kill()

    recording, may = trio.Event(), trio.Event()
    record = Store.record

    async def held_up(*args: Any, **named: Any) -> Any:
        recording.set()
        await may.wait()
        return await record(*args, **named)

    monkeypatch.setattr(Store, "record", held_up)
    house = await open_house(broken=(BrokenCrew("old", ()),))
    await recording.wait()
    refusals: list[str] = []

    @nursery.start_soon
    async def stop() -> None:
        with pytest.raises(Invalid) as refusal:
            await house.stop_one(kickoff_id, crew="old")
        refusals.append(str(refusal.value))

    await house.all_asked()
    may.set()
    assert (await house.end_of(kickoff_id, "old")).status is Status.INTERRUPTED
    while not refusals:  # noqa: ASYNC110 - it is told a moment after the end was recorded
        await trio.sleep(0.01)
    assert "ended by itself before it was stopped" in refusals[0]


async def test_nor_has_one_whose_beginning_is_just_being_recorded(
    open_house: OpenHouse, crew: MakeCrew, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = await open_house(crew(max_running=1))
    await house.kickoff("started", "call gate", "hear", "result ok")
    await house.gate.reaches(1)
    record, suspend = house.store.record, RunningExecution.suspend
    recording, left = trio.Event(), trio.Event()

    async def record_late(execution_id: str, entry: ExecutionUpdate) -> None:
        if execution_id == kickoff_id and entry.change.get("status") is Status.RUNNING:
            recording.set()
            await left.wait()
        await record(execution_id, entry)

    def note(self: RunningExecution) -> None:
        suspend(self)
        left.set()

    monkeypatch.setattr(house.store, "record", record_late)
    monkeypatch.setattr(RunningExecution, "suspend", note)
    kickoff_id = await house.kickoff()
    house.gate.open()
    await recording.wait()
    await house.stop()

    house = await open_house(crew())
    assert (await house.end_of(kickoff_id)).state is ExecutionState.SUCCESS


async def test_one_whose_turn_comes_as_the_daemon_ends_has_not_begun(
    open_house: OpenHouse, crew: MakeCrew, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = await open_house(crew(max_running=1))
    await house.kickoff("started", "call gate", "hear", "result ok")
    await house.gate.reaches(1)
    read, suspend = house.store.execution, RunningExecution.suspend
    reading, left = trio.Event(), trio.Event()

    async def read_late(*args: Any, **named: Any) -> Any:
        reading.set()
        await left.wait()
        return await read(*args, **named)

    def note(self: RunningExecution) -> None:
        suspend(self)
        left.set()

    monkeypatch.setattr(house.store, "execution", read_late)
    monkeypatch.setattr(RunningExecution, "suspend", note)
    kickoff_id = await house.kickoff()
    house.gate.open()
    await reading.wait()
    await house.stop()

    house = await open_house(crew())
    assert (await house.end_of(kickoff_id)).state is ExecutionState.SUCCESS
    assert (await house.story(kickoff_id)).count("crew_kickoff_started") == 1


@pytest.mark.parametrize("waits", [False, True])
async def test_one_that_is_written_down_as_the_daemon_ends_has_not_begun(
    open_house: OpenHouse,
    crew: MakeCrew,
    nursery: trio.Nursery,
    monkeypatch: pytest.MonkeyPatch,
    waits: bool,
) -> None:
    """Its client was told nothing, or that it failed, and comes again with the same key."""
    house = await open_house(crew(max_running=1))
    if waits:
        await house.kickoff(*WAITS)
        await house.gate.reaches(1)
    create, suspend = StoreDatabase.create, Scheduler.suspend
    creating, left = trio.Event(), threading.Event()

    def create_late(self: StoreDatabase, *args: Any) -> Any:
        trio.from_thread.run_sync(creating.set)
        left.wait(HANG)
        return create(self, *args)

    def note(self: Scheduler) -> None:
        suspend(self)
        left.set()

    monkeypatch.setattr(StoreDatabase, "create", create_late)
    monkeypatch.setattr(Scheduler, "suspend", note)

    @nursery.start_soon
    async def kick_off() -> None:
        with suppress(Unavailable):
            await house.kickoff(*WAITS, key="the same")

    await creating.wait()
    with trio.fail_after(HANG):
        await house.stop()

    house = await open_house(crew())
    found = await house.executor.executions(house.holder, state=None, limit=10, cursor=None)
    kickoff_id = await house.kickoff(*WAITS, key="the same")
    assert kickoff_id == found.executions[0].id
    house.gate.open()
    assert (await house.end_of(kickoff_id)).state is ExecutionState.SUCCESS
    put_back = [
        event.data
        for event in await house.events(kickoff_id)
        if event.type == "crew_execution_requeued"
    ]
    assert put_back == ([] if waits else [{"began": False}])
