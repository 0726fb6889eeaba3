"""A store that cannot write for a while: nothing is lost, and nothing is told twice."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from smartlinkd.errors import Invalid, Unavailable
from smartlinkd.store.model import ExecutionState, Status
from tests.crews.executor.conftest import CrewsDaemon, Disk, StartDaemon, make_crew

SCRIPT = ("started", "task a", "log 1", "call gate", "echo", "done a", "log 2", "result ok")
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
"""Records from the gate's opening to the next start: the tool's answer, the log line, the outcome,
the start."""


@pytest.mark.parametrize("refused", range(1, len(STORY) + 1))
async def test_each_write_that_a_full_disk_refuses_is_recorded_once(
    disk: Disk, daemon: CrewsDaemon, refused: int
) -> None:
    """The first number is that of `started`, which is no event. Its beginning was recorded with the
    kickoff."""
    daemon.gate.open()
    disk.refuses_record(number=refused, times=3)
    kickoff_id = await daemon.kickoff(*SCRIPT)
    end = await daemon.end_of(kickoff_id)
    assert disk.refused == 3
    assert (end.status, end.completed_tasks) == (Status.COMPLETED, 1)
    assert await daemon.story(kickoff_id) == STORY


async def test_nothing_is_shown_before_it_is_on_disk(disk: Disk, daemon: CrewsDaemon) -> None:
    kickoff_id = await daemon.kickoff("started", "call gate", "echo", "result ok")
    await daemon.gate.reaches(1)
    disk.refusing = True
    daemon.gate.open()
    await disk.has_refused(3)
    assert (await daemon.look(kickoff_id)).state is ExecutionState.RUNNING
    assert (await daemon.story(kickoff_id))[-1] == "tool_usage_started"
    disk.refusing = False
    assert (await daemon.end_of(kickoff_id)).state is ExecutionState.SUCCESS


async def test_execution_that_waits_for_the_disk_is_stopped(
    disk: Disk, daemon: CrewsDaemon
) -> None:
    kickoff_id = await daemon.kickoff("started", "call gate", "echo", "hang")
    await daemon.gate.reaches(1)
    disk.refusing = True
    daemon.gate.open()
    await disk.has_refused(1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(daemon.stop_one, kickoff_id)
        await disk.has_refused(disk.refused + 2)
        disk.refusing = False
    assert (await daemon.look(kickoff_id)).status is Status.STOPPED


async def give_up_on_first_answer(disk: Disk, daemon: CrewsDaemon, kickoff_id: str) -> None:
    """As a client that is answered 503: its answer is being recorded."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(daemon.resume, kickoff_id, text="first"))
        await disk.has_refused(disk.refused + 1)
        nursery.cancel_scope.cancel()


async def test_answer_repeated_after_a_timeout_is_the_same_answer(
    disk: Disk, daemon: CrewsDaemon
) -> None:
    kickoff_id = await daemon.kickoff(
        *("started", "task a", "ask a", "echo", "done a", "call gate", "echo", "result ok")
    )
    await daemon.reaches(kickoff_id, Status.WAITING_FOR_HUMAN_INPUT)
    disk.refusing = True
    await give_up_on_first_answer(disk, daemon, kickoff_id)
    for other in ({"text": "second"}, {"text": "first", "approved": False}):
        with pytest.raises(Invalid, match="not waiting"):
            await daemon.resume(kickoff_id, **other)
    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(partial(daemon.resume, kickoff_id, text="first"))
        await wait_all_tasks_blocked()
        disk.refusing = False
    await daemon.gate.reaches(1)
    await daemon.resume(kickoff_id, text="first")  # also by who is late
    with pytest.raises(Invalid, match="not waiting"):
        await daemon.resume(kickoff_id, text="second")
    daemon.gate.open()
    assert (await daemon.end_of(kickoff_id)).status is Status.COMPLETED
    assert (await daemon.story(kickoff_id)).count("human_feedback_received") == 1
    answer, _ = map(json.loads, await daemon.logs(kickoff_id))
    assert answer["feedback"] == "first"


@pytest.mark.parametrize("waits", [False, True])
async def test_stop_on_a_full_disk_is_unavailable_in_time(
    disk: Disk,
    start_daemon: StartDaemon,
    limits: dict[str, Any],
    waits: bool,
) -> None:
    limits["completion_timeout_s"] = 0.05
    daemon = await start_daemon(make_crew(max_running=1, grace=1.0))
    running = await daemon.kickoff("started", "call gate", "echo", "result ok")
    kickoff_id = await daemon.kickoff("started", "hang") if waits else running
    await daemon.gate.reaches(1)
    disk.refusing = True
    for _ in range(2):
        with pytest.raises(
            Unavailable, match=r"its end is not recorded yet.*ask /status"
        ) as refused:
            await daemon.stop_one(kickoff_id)
        assert refused.value.retry_after == 5
    assert (await daemon.look(kickoff_id)).state is (
        ExecutionState.PENDING if waits else ExecutionState.RUNNING
    )
    disk.refusing = False
    assert (await daemon.end_of(kickoff_id)).status is Status.STOPPED
    daemon.gate.open()


async def test_full_disk_does_not_keep_the_daemon_from_ending(
    disk: Disk, start_daemon: StartDaemon
) -> None:
    daemon = await start_daemon(make_crew())
    waiting = await daemon.kickoff(*SCRIPT)
    await daemon.gate.reaches(1)
    disk.refusing = True
    daemon.gate.open()
    await disk.has_refused(1)
    with trio.fail_after(5):
        await daemon.stop()
    disk.refusing = False
    daemon = await start_daemon(make_crew())
    assert (await daemon.end_of(waiting)).status is Status.INTERRUPTED


async def test_kickoff_while_an_outcome_waits_for_the_disk_waits_for_its_slot(
    start_daemon: StartDaemon, disk: Disk
) -> None:
    """Its end can be seen a moment before the executor has heard that it is recorded."""
    daemon = await start_daemon(make_crew(max_running=1, queue=0))
    first = await daemon.kickoff("started", "call gate", "echo", "result ok")
    await daemon.gate.reaches(1)
    disk.refuses_record(number=BEGINNING_OF_NEXT - 1, times=1_000_000)
    daemon.gate.open()
    await disk.has_refused(1)
    next_one = await daemon.kickoff()
    assert (await daemon.look(first)).state is ExecutionState.RUNNING
    disk.refuses_record(number=1, times=0)
    for each in (first, next_one):
        assert (await daemon.end_of(each)).state is ExecutionState.SUCCESS


async def test_stop_while_an_outcome_waits_for_the_disk_is_refused(
    start_daemon: StartDaemon, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    daemon = await start_daemon(make_crew(max_running=1, grace=1.0))
    kickoff_id = await daemon.kickoff("started", "call gate", "echo", "result ok", "hang")
    await daemon.gate.reaches(1)
    disk.refuses_record(number=BEGINNING_OF_NEXT - 1, times=10)
    daemon.gate.open()
    await disk.has_refused(1)
    with pytest.raises(Invalid, match="ended by itself before it was stopped"):
        await daemon.stop_one(kickoff_id)
    assert (await daemon.look(kickoff_id)).state is ExecutionState.SUCCESS
    assert "does not end within 1 s of its last message" in caplog.text
