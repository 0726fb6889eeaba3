"""A journal that cannot write for a while holds things up: nothing is lost, nothing comes twice."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from datetime import UTC, datetime
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from smartlinkd.crews.execution import RunningExecution
from smartlinkd.crews.model import ExecutorLimits
from smartlinkd.crews.outcome import ExitReason
from smartlinkd.crews.worker import Worker
from smartlinkd.errors import Invalid, Unavailable
from smartlinkd.processes.process_tree import ProcessTree
from smartlinkd.store.actor import Store
from smartlinkd.store.model import ExecutionState, ExecutionUpdate, Status, WebhookTarget
from smartlinkd.threads import NoThread
from tests.fakes.scrape import observed

if TYPE_CHECKING:
    from tests.crews.executor.conftest import House, MakeCrew, OpenHouse
    from tests.crews.executor.trouble.conftest import Disk

pytestmark = pytest.mark.usefixtures("one_by_one")

HANG = 20.0  # seconds; what takes that long hangs
SCRIPT = ("started", "task a", "log 1", "call gate", "hear", "done a", "log 2", "result ok")
STORY = [
    "crew_kickoff_started",
    "task_started",
    "log",
    "tool_usage_started",
    "tool_usage_finished",
    "log",
    "task_completed",
    "log",
    "crew_kickoff_completed",
]
BEGINNING_OF_NEXT = 4
"""What is recorded once a worker is let through the gate: the tool's answer, what it says of that,
its end, and this."""


async def test_a_kickoff_is_refused_and_nothing_is_created(disk: Disk, house: House) -> None:
    disk.refusing = True
    with pytest.raises(Unavailable, match="disk is full"):
        await house.kickoff()
    disk.refusing = False
    assert await house.store.unfinished() == []
    assert (await house.end_of(await house.kickoff())).state is ExecutionState.SUCCESS


async def test_a_kickoff_that_was_refused_has_spent_no_key(disk: Disk, house: House) -> None:
    disk.refusing = True
    with pytest.raises(Unavailable):
        await house.kickoff(key="k", body={"a": 1})
    disk.refusing = False
    kickoff_id = await house.kickoff(key="k", body={"a": 2})
    assert (await house.end_of(kickoff_id)).state is ExecutionState.SUCCESS


class NoFolders:
    """There is no room for any, so many times; `asked` counts how often it was tried."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, times: float, why: int = errno.ENOSPC
    ) -> None:
        self.times = times
        self.asked = 0
        make = tempfile.mkdtemp

        def try_to_make(**how: Any) -> str:
            self.asked += 1
            if self.asked <= self.times:
                raise OSError(why, os.strerror(why))
            made: str = make(**how)
            return made

        monkeypatch.setattr(tempfile, "mkdtemp", try_to_make)


@pytest.mark.parametrize("why", [errno.ENOSPC, errno.EDQUOT])
async def test_one_whose_worker_finds_no_room_is_held_up_and_nobody_behind_it_fails(
    disk: Disk, open_house: OpenHouse, crew: MakeCrew, monkeypatch: pytest.MonkeyPatch, why: int
) -> None:
    house = await open_house(crew(max_running=1))
    look, looked = house.store.look_at_disk, []

    async def noting() -> None:
        await look()
        looked.append(True)

    monkeypatch.setattr(house.store, "look_at_disk", noting)
    folders = NoFolders(monkeypatch, 3, why)
    ran = [await house.kickoff() for _ in range(3)]
    ends = [await house.end_of(each) for each in ran]
    assert [end.state for end in ends] == 3 * [ExecutionState.SUCCESS]
    assert folders.asked == 3 + len(ran)
    assert len(looked) == 3  # whose disk is full, is told


async def test_a_look_at_the_disk_that_finds_no_thread_ends_nothing(
    disk: Disk, house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0

    async def look_in_vain() -> None:
        nonlocal looks
        looks += 1
        raise NoThread("there is no thread to be had", retry_after=1)

    monkeypatch.setattr(house.store, "look_at_disk", look_in_vain)
    NoFolders(monkeypatch, 2)
    assert (await house.end_of(await house.kickoff())).state is ExecutionState.SUCCESS
    assert looks == 2


async def test_one_whose_worker_finds_no_room_can_be_stopped(
    disk: Disk, house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = NoFolders(monkeypatch, inf)
    kickoff_id = await house.kickoff()
    with trio.fail_after(HANG):
        while folders.asked < 2:  # noqa: ASYNC110 - it tells nobody
            await trio.sleep(0.002)
    await house.stop_one(kickoff_id)
    assert (await house.look(kickoff_id)).status is Status.STOPPED


async def test_one_whose_worker_finds_no_room_is_run_by_the_next_daemon(
    disk: Disk, house: House, open_house: OpenHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has not begun, so nothing of it is interrupted."""
    folders = NoFolders(monkeypatch, inf)
    kickoff_id = await house.kickoff()
    with trio.fail_after(HANG):
        while folders.asked < 2:  # noqa: ASYNC110 - it tells nobody
            await trio.sleep(0.002)
    await house.stop()
    folders.times = 0
    house = await open_house()
    assert (await house.end_of(kickoff_id)).state is ExecutionState.SUCCESS


async def test_however_often_that_was_it_is_not_taken_for_one_that_ran(
    disk: Disk, open_house: OpenHouse, crew: MakeCrew, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = crew(on_restart="rerun")
    folders = NoFolders(monkeypatch, inf)
    house = await open_house(again)
    kickoff_id = await house.kickoff("started", "call gate", "hear", "result ok")
    for _ in range(ExecutorLimits().max_reruns):
        with trio.fail_after(HANG):
            asked = folders.asked
            while folders.asked < asked + 2:  # noqa: ASYNC110 - it tells nobody
                await trio.sleep(0.002)
        await house.stop()
        house = await open_house(again)
    folders.times = 0
    await house.gate.reaches(1)
    await house.stop()
    house = await open_house(again)
    house.gate.open()
    assert (await house.end_of(kickoff_id)).state is ExecutionState.SUCCESS


async def test_but_not_one_whose_worker_may_have_begun(
    disk: Disk, house: House, open_house: OpenHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was held up before, and has its inputs by now, though its start is not known yet."""
    NoFolders(monkeypatch, 1)
    starting = trio.Event()

    async def hang(*_: Any, **__: Any) -> None:
        starting.set()
        await trio.sleep_forever()

    monkeypatch.setattr(ProcessTree, "wait_for_start", hang)
    kickoff_id = await house.kickoff()
    await starting.wait()
    await house.stop()
    monkeypatch.undo()
    house = await open_house()
    assert (await house.end_of(kickoff_id)).status is Status.INTERRUPTED


async def test_the_wait_for_room_is_not_the_workers_time(
    disk: Disk,
    open_house: OpenHouse,
    crew: MakeCrew,
    limits: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits.update(first_retry_s=4.5, longest_retry_s=4.5)
    house = await open_house(crew(deadline=4))
    NoFolders(monkeypatch, 1)
    end = await house.end_of(await house.kickoff())
    assert end.state is ExecutionState.SUCCESS


async def test_the_wait_for_room_is_part_of_its_wait(
    disk: Disk, house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = NoFolders(monkeypatch, inf)
    kickoff_id = await house.kickoff()
    with trio.fail_after(HANG):
        while folders.asked < 2:  # noqa: ASYNC110 - it tells nobody
            await trio.sleep(0.002)
    assert observed(house.executor.waits) == {}
    until = datetime.now(UTC)
    folders.times = 0
    found = await house.end_of(kickoff_id)
    ((count, seconds),) = observed(house.executor.waits).values()
    assert count == 1
    assert seconds >= (until - found.created_at).total_seconds()


@pytest.mark.parametrize("refused", range(1, len(STORY) + 1))
async def test_each_moment_of_a_run_is_held_up_and_told_once(
    disk: Disk, house: House, refused: int
) -> None:
    """The first number is that of `started`, which is no event. Its beginning was recorded with the
    kickoff."""
    house.gate.open()
    disk.refuses_record(number=refused, times=3)
    kickoff_id = await house.kickoff(*SCRIPT)
    end = await house.end_of(kickoff_id)
    assert disk.refused == 3
    assert (end.status, end.completed_tasks) == (Status.COMPLETED, 1)
    assert await house.story(kickoff_id) == STORY


async def test_the_beginning_of_one_that_waited_is_held_up_and_told_once(
    disk: Disk, open_house: OpenHouse, crew: MakeCrew
) -> None:
    house = await open_house(crew(max_running=1))
    await house.kickoff("started", "call gate", "hear", "result ok")
    kickoff_id = await house.kickoff(*SCRIPT)
    await house.gate.reaches(1)
    disk.refuses_record(number=BEGINNING_OF_NEXT, times=3)
    house.gate.open()
    end = await house.end_of(kickoff_id)
    assert disk.refused == 3
    assert (end.status, end.completed_tasks) == (Status.COMPLETED, 1)
    assert await house.story(kickoff_id) == STORY


async def test_what_was_recorded_in_the_moment_of_a_stop_is_told(
    disk: Disk, house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever records is cut short before it hears that the journal has it."""
    webhook = WebhookTarget("task", "http://127.0.0.1:9/", (), None)
    recorded = trio.Event()
    record = house.store.record

    async def record_and_hang(execution_id: str, entry: ExecutionUpdate) -> None:
        await record(execution_id, entry)
        if entry.deliveries:
            recorded.set()
            await trio.sleep_forever()

    kickoff_id = await house.kickoff(*SCRIPT, webhooks=(webhook,))
    await house.gate.reaches(1)
    monkeypatch.setattr(house.store, "record", record_and_hang)
    house.gate.open()
    await recorded.wait()
    assert house.calls == 0
    await house.stop_one(kickoff_id)
    assert house.calls == 1


async def test_nothing_is_told_before_it_is_on_disk(disk: Disk, house: House) -> None:
    kickoff_id = await house.kickoff("started", "call gate", "hear", "result ok")
    await house.gate.reaches(1)
    disk.refusing = True
    house.gate.open()
    await disk.has_refused(3)
    assert (await house.look(kickoff_id)).state is ExecutionState.RUNNING
    assert (await house.story(kickoff_id))[-1] == "tool_usage_started"
    disk.refusing = False
    assert (await house.end_of(kickoff_id)).state is ExecutionState.SUCCESS


async def test_one_that_is_held_up_is_stopped(disk: Disk, house: House) -> None:
    kickoff_id = await house.kickoff("started", "call gate", "hear", "hang")
    await house.gate.reaches(1)
    disk.refusing = True
    house.gate.open()
    await disk.has_refused(1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(house.stop_one, kickoff_id)
        await disk.has_refused(disk.refused + 2)
        disk.refusing = False
    assert (await house.look(kickoff_id)).status is Status.STOPPED


async def give_up_on_first_answer(disk: Disk, house: House, kickoff_id: str) -> None:
    """As a client that is answered 503: its answer is being recorded."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(house.resume, kickoff_id, text="first"))
        await disk.has_refused(disk.refused + 1)
        nursery.cancel_scope.cancel()


async def test_an_answer_that_its_asker_has_given_up_on_is_one_when_it_comes_again(
    disk: Disk, house: House
) -> None:
    kickoff_id = await house.kickoff(
        *("started", "task a", "ask a", "hear", "done a", "call gate", "hear", "result ok")
    )
    await house.reaches(kickoff_id, Status.WAITING_FOR_HUMAN_INPUT)
    disk.refusing = True
    await give_up_on_first_answer(disk, house, kickoff_id)
    for other in ({"text": "second"}, {"text": "first", "approved": False}):
        with pytest.raises(Invalid, match="another answer is being recorded"):
            await house.resume(kickoff_id, **other)
    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(partial(house.resume, kickoff_id, text="first"))
        await wait_all_tasks_blocked()
        disk.refusing = False
    await house.gate.reaches(1)
    await house.resume(kickoff_id, text="first")  # also by who is late
    with pytest.raises(Invalid, match="not waiting"):
        await house.resume(kickoff_id, text="second")
    house.gate.open()
    assert (await house.end_of(kickoff_id)).status is Status.COMPLETED
    assert (await house.story(kickoff_id)).count("human_feedback_received") == 1
    answer, _ = map(json.loads, await house.logs(kickoff_id))
    assert answer["feedback"] == "first"


async def test_an_answer_that_comes_again_is_none_to_the_next_question(
    disk: Disk, house: House
) -> None:
    kickoff_id = await house.kickoff(
        *("started", "task a", "ask a", "hear", "done a", "task b", "ask b", "hear"),
        *("done b", "result ok"),
    )
    await house.reaches(kickoff_id, Status.WAITING_FOR_HUMAN_INPUT)
    disk.refusing = True
    await give_up_on_first_answer(disk, house, kickoff_id)
    disk.refusing = False
    with trio.fail_after(HANG):
        while (await house.look(kickoff_id)).current_task != "b":  # noqa: ASYNC110 - no bell here
            await trio.sleep(0.002)
    await house.resume(kickoff_id, text="first")
    assert (await house.look(kickoff_id)).status is Status.WAITING_FOR_HUMAN_INPUT
    await house.resume(kickoff_id, "b")
    assert (await house.end_of(kickoff_id)).status is Status.COMPLETED
    assert (await house.story(kickoff_id)).count("human_feedback_received") == 2


@pytest.mark.parametrize("waits", [False, True])
async def test_who_stops_one_is_not_kept_until_there_is_room(
    disk: Disk,
    open_house: OpenHouse,
    crew: MakeCrew,
    limits: dict[str, Any],
    waits: bool,
) -> None:
    limits["completion_timeout_s"] = 0.05
    house = await open_house(crew(max_running=1, grace=1.0))
    running = await house.kickoff("started", "call gate", "hear", "result ok")
    kickoff_id = await house.kickoff("started", "hang") if waits else running
    await house.gate.reaches(1)
    disk.refusing = True
    for _ in range(2):
        with pytest.raises(Unavailable, match=r"cannot record its end.*ask /status") as refused:
            await house.stop_one(kickoff_id)
        assert refused.value.retry_after == 5
    assert (await house.look(kickoff_id)).state is (
        ExecutionState.PENDING if waits else ExecutionState.RUNNING
    )
    disk.refusing = False
    assert (await house.end_of(kickoff_id)).status is Status.STOPPED
    house.gate.open()


async def test_stop_of_one_that_is_being_loaded_is_refused_in_time(
    disk: Disk, open_house: OpenHouse, crew: MakeCrew, limits: dict[str, Any]
) -> None:
    limits["settle_timeout_s"] = 0.05
    one = crew(max_running=1, on_restart="rerun")
    house = await open_house(one)
    running, waiting = [await house.kickoff("started", "call gate", "hear") for _ in range(2)]
    await house.gate.reaches(1)
    await house.kill()

    disk.refusing = True
    house = await open_house(one)
    await disk.has_refused(1)
    for each in (running, waiting):
        with pytest.raises(Unavailable, match="nothing was stopped; try again"):
            await house.stop_one(each)
    disk.refusing = False
    for each in (running, waiting):
        await house.stop_one(each)
        assert (await house.end_of(each)).status is Status.STOPPED


async def test_the_next_one_waits_for_the_end_of_the_one_before(
    disk: Disk, open_house: OpenHouse, crew: MakeCrew
) -> None:
    house = await open_house(crew(max_running=1))
    disk.refuses_record(number=2, times=3)  # the end of the first
    ids = [await house.kickoff("started", "result ok") for _ in range(2)]
    first, second = [await house.end_of(each) for each in ids]
    assert first.finished_at is not None
    assert second.started_at is not None
    assert first.finished_at <= second.started_at


@pytest.mark.parametrize("on_restart", ["fail", "rerun"])
async def test_a_restart_goes_on_when_the_disk_does(
    disk: Disk, open_house: OpenHouse, crew: MakeCrew, on_restart: str
) -> None:
    one = crew(max_running=1, on_restart=on_restart)
    house = await open_house(one)
    left = [await house.kickoff(*SCRIPT) for _ in range(2)]
    await house.gate.reaches(1)
    await house.kill()

    disk.refusing = True
    house = await open_house(one)
    house.gate.open()
    await disk.has_refused(3)
    assert (await house.look(left[0])).state is ExecutionState.RUNNING
    disk.refusing = False
    ran = [await house.end_of(each) for each in left]
    first = Status.COMPLETED if on_restart == "rerun" else Status.INTERRUPTED
    assert [each.status for each in ran] == [first, Status.COMPLETED]


@pytest.mark.parametrize("question", ["unfinished", "count_bare_events", "execution"])
async def test_a_restart_goes_on_when_the_journal_is_busy_at_first(
    disk: Disk,
    open_house: OpenHouse,
    crew: MakeCrew,
    monkeypatch: pytest.MonkeyPatch,
    question: str,
) -> None:
    """As when many clients ask at once after a restart: no reason to give up."""
    one = crew(on_restart="rerun")
    house = await open_house(one)
    kickoff_id = await house.kickoff(*SCRIPT)
    await house.gate.reaches(1)
    await house.kill()

    refusals = [Unavailable("the queue is full", retry_after=1)] * 2
    honest = getattr(Store, question)

    async def busy(self: Store, *args: Any, **named: Any) -> Any:
        if refusals:
            raise refusals.pop()
        return await honest(self, *args, **named)

    monkeypatch.setattr(Store, question, busy)
    house = await open_house(one)
    house.gate.open()
    with trio.fail_after(5):
        while refusals:  # noqa: ASYNC110
            await trio.sleep(0.005)
    assert (await house.end_of(kickoff_id)).state is ExecutionState.SUCCESS


async def test_a_full_disk_does_not_keep_the_daemon_from_ending(
    disk: Disk, open_house: OpenHouse, crew: MakeCrew
) -> None:
    house = await open_house(crew())
    waiting = await house.kickoff(*SCRIPT)
    await house.gate.reaches(1)
    disk.refusing = True
    house.gate.open()
    await disk.has_refused(1)
    with trio.fail_after(5):
        await house.stop()
    disk.refusing = False
    house = await open_house(crew())
    assert (await house.end_of(waiting)).status is Status.INTERRUPTED


@pytest.mark.parametrize("which", ["its beginning", "its end"])
async def test_nor_does_one_whose_moment_cannot_be_recorded(
    disk: Disk,
    open_house: OpenHouse,
    crew: MakeCrew,
    limits: dict[str, Any],
    which: str,
) -> None:
    limits["last_write_s"] = 0.05
    house = await open_house(crew(max_running=1))
    await house.kickoff("started", "call gate", "hear", "result ok")
    kickoff_id = await house.kickoff("started", "result ok")
    await house.gate.reaches(1)
    number = BEGINNING_OF_NEXT + (0 if which == "its beginning" else 2)
    disk.refuses_record(number=number, times=1_000_000)
    house.gate.open()
    await disk.has_refused(1)
    with trio.fail_after(5):
        await house.stop()
    disk.refuses_record(number=0, times=0)
    house = await open_house(crew())
    end = await house.end_of(kickoff_id)
    assert end.status is (Status.COMPLETED if which == "its beginning" else Status.INTERRUPTED)


@pytest.mark.parametrize("refusing", [False, True])
async def test_a_worker_that_ends_as_the_daemon_does_is_recorded_if_that_is_possible(
    disk: Disk,
    open_house: OpenHouse,
    crew: MakeCrew,
    limits: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    *,
    refusing: bool,
) -> None:
    limits["last_write_s"] = 0.05 if refusing else 5
    house = await open_house(crew())
    end, suspend = Worker.exit_reason, RunningExecution.suspend
    left = trio.Event()

    async def end_with_the_daemon(self: Worker) -> ExitReason:
        how = await end(self)
        disk.refusing = refusing
        house.executor.stop_all()
        with trio.CancelScope(shield=True):
            await left.wait()
        return how

    def note(self: RunningExecution) -> None:
        suspend(self)
        left.set()

    monkeypatch.setattr(Worker, "exit_reason", end_with_the_daemon)
    monkeypatch.setattr(RunningExecution, "suspend", note)
    kickoff_id = await house.kickoff("started", "result ok")
    with trio.fail_after(4):
        await house.ended.wait()
    disk.refusing = False
    monkeypatch.setattr(Worker, "exit_reason", end)
    house = await open_house(crew())
    expected = Status.INTERRUPTED if refusing else Status.COMPLETED
    assert (await house.end_of(kickoff_id)).status is expected


async def test_who_comes_while_an_end_is_being_recorded_waits_for_its_place(
    open_house: OpenHouse, crew: MakeCrew, disk: Disk
) -> None:
    """Its end can be seen a moment before the executor has heard that it is recorded."""
    house = await open_house(crew(max_running=1, queue=0))
    first = await house.kickoff("started", "call gate", "hear", "result ok")
    await house.gate.reaches(1)
    disk.refuses_record(number=BEGINNING_OF_NEXT - 1, times=1_000_000)
    house.gate.open()
    await disk.has_refused(1)
    next_one = await house.kickoff()
    assert (await house.look(first)).state is ExecutionState.RUNNING
    disk.refuses_record(number=1, times=0)
    for each in (first, next_one):
        assert (await house.end_of(each)).state is ExecutionState.SUCCESS


async def test_a_stop_while_an_end_is_being_recorded_leaves_its_worker_its_time(
    open_house: OpenHouse, crew: MakeCrew, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    house = await open_house(crew(max_running=1, grace=1.0))
    kickoff_id = await house.kickoff("started", "call gate", "hear", "result ok", "hang")
    await house.gate.reaches(1)
    disk.refuses_record(number=BEGINNING_OF_NEXT - 1, times=10)
    house.gate.open()
    await disk.has_refused(1)
    with pytest.raises(Invalid, match="ended by itself before it was stopped"):
        await house.stop_one(kickoff_id)
    assert (await house.look(kickoff_id)).state is ExecutionState.SUCCESS
    assert "does not end within 1 s of its last message" in caplog.text
