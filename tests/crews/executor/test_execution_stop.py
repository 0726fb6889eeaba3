"""Stopping an execution, and the worker of one that has its outcome already."""

from __future__ import annotations

import pytest
import trio

from smartlinkd.crews.model import CrewLoad
from smartlinkd.errors import Invalid
from smartlinkd.store.model import ExecutionState, Status
from tests.crews.executor.conftest import WAITS, CrewsDaemon, StartDaemon, make_crew


async def test_stop_of_a_waiting_execution_ends_it_unstarted(start_daemon: StartDaemon) -> None:
    daemon = await start_daemon(make_crew(max_running=1))
    running, waiting, next_one = [await daemon.kickoff(*WAITS) for _ in range(3)]
    for each in (running, waiting):
        with pytest.raises(Invalid, match="not waiting for human input"):
            await daemon.resume(each)
    await daemon.stop_one(waiting)
    end = await daemon.look(waiting)
    assert (end.state, end.status) == (ExecutionState.FAILED, Status.STOPPED)
    assert end.error == "stopped by a holder of the organization token before its turn came"
    assert (end.started_at, end.finished_at is not None) == (None, True)
    assert await daemon.story(waiting) == ["crew_kickoff_failed"]
    daemon.gate.open()
    for each in (running, next_one):
        assert (await daemon.end_of(each)).state is ExecutionState.SUCCESS


@pytest.mark.parametrize(
    ("user", "by"), [("", "a holder of the organization token"), ("an", "user an")]
)
async def test_stop_of_a_running_execution_ends_its_worker_and_names_who_stopped_it(
    daemon: CrewsDaemon, user: str, by: str
) -> None:
    kickoff_id = await daemon.kickoff("started", "task a", "call gate", "echo", user=user)
    await daemon.gate.reaches(1)
    await daemon.stop_one(kickoff_id, user)
    end = await daemon.look(kickoff_id)
    assert (end.state, end.status, end.current_task) == (
        ExecutionState.FAILED,
        Status.STOPPED,
        None,
    )
    assert end.error == f"stopped by {by}; the worker ended without a signal"
    assert (await daemon.story(kickoff_id))[-1] == "crew_kickoff_failed"
    assert list((daemon.folder / "runs").iterdir()) == []
    assert daemon.executor.load()["c"].running == 0
    await daemon.gate.reaches(0)


@pytest.mark.parametrize("waits", [False, True])
async def test_two_stops_at_the_same_moment_end_the_execution_once(
    start_daemon: StartDaemon, waits: bool
) -> None:
    daemon = await start_daemon(make_crew(max_running=1))
    if waits:
        await daemon.kickoff(*WAITS)
    kickoff_id = await daemon.kickoff(*WAITS)
    await daemon.gate.reaches(1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(daemon.stop_one, kickoff_id)
        nursery.start_soon(daemon.stop_one, kickoff_id)
    assert (await daemon.look(kickoff_id)).status is Status.STOPPED
    assert (await daemon.story(kickoff_id)).count("crew_kickoff_failed") == 1


LINGERS = ("started", "log here", "result ok", "deaf", "hang")
LONG = 1000.0
"""Seconds of a grace that no test waits for."""


async def test_result_stands_while_the_worker_has_its_grace_which_ends_with_the_daemon(
    start_daemon: StartDaemon,
) -> None:
    daemon = await start_daemon(make_crew(grace=LONG))
    end = await daemon.end_of(await daemon.kickoff("started", "result ok", "hang"))
    assert (end.state, end.result) == (ExecutionState.SUCCESS, "ok")
    assert (await daemon.story(end.id))[-1] == "crew_kickoff_completed"
    with pytest.raises(Invalid, match="has ended already"):
        await daemon.stop_one(end.id)
    await trio.sleep(0.2)  # a signal would have ended it by now
    assert len(list((daemon.folder / "runs").iterdir())) == 1
    assert daemon.executor.load() == {"c": CrewLoad(running=1)}
    with trio.fail_after(5):
        await daemon.stop()  # by SIGTERM: a message `stop` would find nobody


async def test_execution_keeps_its_slot_until_its_worker_has_exited(
    start_daemon: StartDaemon, caplog: pytest.LogCaptureFixture
) -> None:
    daemon = await start_daemon(make_crew(max_running=1, grace=0.2))
    first = await daemon.end_of(await daemon.kickoff(*LINGERS))
    second = await daemon.end_of(await daemon.kickoff())
    assert first.finished_at is not None
    assert second.started_at is not None
    assert (second.started_at - first.finished_at).total_seconds() >= 0.2
    assert "does not end within 0.2 s of its last message, and is killed" in caplog.text
    await daemon.comes_to_rest()
    assert list((daemon.folder / "runs").iterdir()) == []


@pytest.mark.parametrize("in_order", [True, False])
async def test_result_stands_when_the_daemon_ends_before_the_worker(
    start_daemon: StartDaemon, *, in_order: bool
) -> None:
    daemon = await start_daemon(make_crew(grace=0.2))
    kickoff_id = await daemon.kickoff(*LINGERS)
    await daemon.end_of(kickoff_id)
    await (daemon.stop() if in_order else daemon.kill())
    assert list((daemon.folder / "runs").iterdir()) == []

    daemon = await start_daemon()
    assert (await daemon.look(kickoff_id)).status is Status.COMPLETED
    assert daemon.executor.load() == {"c": CrewLoad(running=0, waiting=0)}
