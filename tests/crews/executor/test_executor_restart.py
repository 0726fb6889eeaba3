"""The next start goes on with what the last one has left, after a stop and after a SIGKILL."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
import trio

from smartlinkd.crews.model import BrokenCrew, CrewLoad, ExecutorLimits
from smartlinkd.crews.scheduler import INTERRUPTED, NEVER_RUN
from smartlinkd.errors import Invalid, Unavailable
from smartlinkd.store.model import (
    ExecutionState,
    Status,
    StoreLimits,
    WebhookTarget,
)
from tests.crews.executor.conftest import StartDaemon, make_crew

MAX_RERUNS = ExecutorLimits().max_reruns
WAITS = ("started", "task a", "call gate", "echo", "done a", "task b", "done b", "result ok")


@pytest.fixture(params=["stop", "kill"])
def ends(request: pytest.FixtureRequest) -> str:
    """How the daemon ends: in order, or in the midst of all."""
    return str(request.param)


async def test_restart_interrupts_what_ran_and_runs_what_waited(
    start_daemon: StartDaemon, ends: str
) -> None:
    daemon = await start_daemon(make_crew(max_running=2))
    webhooks = (WebhookTarget("crew", "https://example.com/"),)
    done = await daemon.kickoff()
    ended_before = await daemon.end_of(done)
    ids = [await daemon.kickoff(*WAITS, webhooks=webhooks) for _ in range(6)]
    await daemon.gate.reaches(2)
    await getattr(daemon, ends)()
    assert list((daemon.folder / "runs").iterdir()) == []

    daemon = await start_daemon(make_crew(max_running=1))
    daemon.gate.open()
    ran = [await daemon.end_of(each) for each in ids]
    assert [each.status for each in ran] == [Status.INTERRUPTED] * 2 + [Status.COMPLETED] * 4
    assert {each.error for each in ran[:2]} == {INTERRUPTED}
    assert {each.state for each in ran[:2]} == {ExecutionState.FAILED}
    started = [each.started_at for each in ran[2:]]
    assert all(started)
    assert started == sorted(started)  # type: ignore[type-var]
    assert await daemon.look(done) == ended_before
    assert len(daemon.owed()) == 6
    assert (await daemon.story(ids[0]))[-1] == "crew_kickoff_failed"


async def test_restart_reruns_what_ran_in_a_crew_that_reruns(
    start_daemon: StartDaemon, ends: str
) -> None:
    again = make_crew(on_restart="rerun", max_running=2)
    daemon = await start_daemon(again)
    ids = [await daemon.kickoff(*WAITS) for _ in range(3)]
    await daemon.gate.reaches(2)
    await getattr(daemon, ends)()

    daemon = await start_daemon(again)
    await daemon.gate.reaches(2)
    assert daemon.executor.load() == {"c": CrewLoad(running=2, waiting=1)}
    first = await daemon.look(ids[0])
    assert (first.state, first.completed_tasks, first.current_task) == (
        ExecutionState.RUNNING,
        0,
        "task a",
    )
    daemon.gate.open()
    for each in ids:
        end = await daemon.end_of(each)
        assert end.status is Status.COMPLETED
        assert [task.task_id for task in end.tasks] == ["a", "b"]
    story = await daemon.story(ids[0])
    assert story.count("crew_kickoff_started") == 2
    assert story.count("crew_execution_requeued") == 1
    assert (await daemon.story(ids[2])).count("crew_execution_requeued") == 0


@pytest.mark.parametrize("waits", [True, False])
async def test_execution_that_is_being_stopped_is_stopped_when_the_daemon_ends(
    start_daemon: StartDaemon, nursery: trio.Nursery, *, waits: bool
) -> None:
    again = make_crew(on_restart="rerun", grace=1.0)
    daemon = await start_daemon(again)
    kickoff_id = await daemon.kickoff("started", "deaf", "call gate", "hang")
    await daemon.gate.reaches(1)
    asked = trio.CancelScope()

    @nursery.start_soon
    async def stop() -> None:
        with asked, suppress(Unavailable):
            await daemon.stop_one(kickoff_id)

    await daemon.all_asked()
    if not waits:
        asked.cancel()
    await daemon.stop()

    daemon = await start_daemon(again)
    assert (await daemon.look(kickoff_id)).status is Status.STOPPED
    assert "crew_execution_requeued" not in await daemon.story(kickoff_id)


async def test_execution_is_rerun_three_times_at_most(start_daemon: StartDaemon) -> None:
    again = make_crew(on_restart="rerun")
    daemon = await start_daemon(again)
    kickoff_id = await daemon.kickoff(*WAITS)
    for _ in range(MAX_RERUNS):
        await daemon.gate.reaches(1)
        await daemon.kill()
        daemon = await start_daemon(again)
    await daemon.gate.reaches(1)
    await daemon.kill()

    daemon = await start_daemon(again)
    end = await daemon.end_of(kickoff_id)
    assert (end.status, end.error) == (
        Status.INTERRUPTED,
        f"{INTERRUPTED}, as in {MAX_RERUNS} runs before",
    )
    assert (await daemon.story(kickoff_id)).count("crew_execution_requeued") == MAX_RERUNS


async def test_rerun_beyond_the_stores_limit_is_interrupted(start_daemon: StartDaemon) -> None:
    """The execution has as many webhook calls as it may: the daemon must not fail at that."""
    again = make_crew(on_restart="rerun")
    daemon = await start_daemon(again)
    all_events = WebhookTarget("stream", "https://example.com/")
    kickoff_id = await daemon.kickoff(*WAITS, webhooks=(all_events,))
    await daemon.gate.reaches(1)
    await daemon.kill()

    daemon = await start_daemon(again, store_limits=StoreLimits(deliveries=3))
    end = await daemon.end_of(kickoff_id)
    assert end.status is Status.INTERRUPTED
    assert end.error == (
        f"{INTERRUPTED}, and cannot be run again: webhook calls: more than 3 in one execution; "
        "end it"
    )


async def test_restart_without_a_crew_ends_its_executions(start_daemon: StartDaemon) -> None:
    daemon = await start_daemon(make_crew("old", max_running=1), make_crew("c"))
    ids = [await daemon.kickoff(*WAITS, crew="old") for _ in range(3)]
    await daemon.gate.reaches(1)
    await daemon.kill()

    daemon = await start_daemon(make_crew("c"))
    why = [INTERRUPTED, NEVER_RUN, NEVER_RUN]  # the first one had begun
    for each, error in zip(ids, why, strict=True):
        end = await daemon.end_of(each, "old")
        assert (end.status, end.error) == (Status.INTERRUPTED, error)
    with pytest.raises(Invalid):
        await daemon.stop_one(ids[0], crew="old")
    assert (await daemon.end_of(await daemon.kickoff())).state is ExecutionState.SUCCESS


async def test_restart_with_a_broken_crew_keeps_what_waits(start_daemon: StartDaemon) -> None:
    daemon = await start_daemon(make_crew("old", max_running=1))
    begun, stopped, waits = [await daemon.kickoff(*WAITS, crew="old") for _ in range(3)]
    await daemon.gate.reaches(1)
    await daemon.kill()

    daemon = await start_daemon(broken=(BrokenCrew("old", ()),))
    assert (await daemon.end_of(begun, "old")).error == INTERRUPTED
    await daemon.stop_one(stopped, crew="old")
    assert (await daemon.end_of(stopped, "old")).status is Status.STOPPED
    with pytest.raises(Invalid):
        await daemon.stop_one(stopped, crew="old")
    assert (await daemon.look(waits, "old")).state is ExecutionState.PENDING
    await daemon.stop()

    daemon = await start_daemon(make_crew("old"))
    daemon.gate.open()
    assert (await daemon.end_of(waits, "old")).state is ExecutionState.SUCCESS


async def test_execution_can_be_stopped_while_it_is_loaded_after_a_restart(
    start_daemon: StartDaemon,
) -> None:
    one = make_crew(max_running=1, on_restart="rerun")
    daemon = await start_daemon(one)
    left = [await daemon.kickoff(*WAITS) for _ in range(3)]
    await daemon.gate.reaches(1)
    await daemon.kill()

    daemon = await start_daemon(one)
    async with trio.open_nursery() as nursery:
        for each in left:
            nursery.start_soon(daemon.stop_one, each)
    for each in left:
        assert (await daemon.look(each)).status is Status.STOPPED
    assert daemon.executor.load() == {"c": CrewLoad(running=0, waiting=0)}


async def test_executor_start_removes_what_a_loss_of_power_left_of_workers(
    start_daemon: StartDaemon, folder: Path
) -> None:
    left = folder / "runs" / "smartlinkd-crew-left"
    left.mkdir(parents=True)
    (left / "file").write_text("x")
    await start_daemon()
    assert not left.exists()
