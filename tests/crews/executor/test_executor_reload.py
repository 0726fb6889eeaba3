"""A reload: running executions go on, and waiting ones wait for their crew or end."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from smartlinkd.crews.catalog.catalog import Catalog
from smartlinkd.crews.model import BrokenCrew, Crew, CrewLoad
from smartlinkd.crews.scheduler import NEVER_RUN
from smartlinkd.errors import NotFound, Unavailable
from smartlinkd.store.model import ExecutionState, Status
from tests.crews.executor.conftest import HANG, WAITS, CrewsDaemon, StartDaemon, make_crew

BROKEN_C = BrokenCrew("c", ())


def having(*crews: Crew) -> Catalog:
    return Catalog({crew.name: crew for crew in crews})


async def one_running_one_waiting(daemon: CrewsDaemon) -> tuple[str, str]:
    running = await daemon.kickoff(*WAITS)
    await daemon.gate.reaches(1)
    return running, await daemon.kickoff(*WAITS)


async def its_place_is_free(daemon: CrewsDaemon) -> None:
    """And nobody has taken it. The end is told while its worker is still there."""
    with trio.fail_after(HANG):
        while daemon.executor.load()["c"] != CrewLoad(running=0, waiting=1):
            await wait_all_tasks_blocked(0.001)


async def test_reload_with_more_slots_starts_what_waits_and_one_with_fewer_ends_nothing(
    start_daemon: StartDaemon,
) -> None:
    daemon = await start_daemon(make_crew(max_running=1))
    ids = [*await one_running_one_waiting(daemon), await daemon.kickoff(*WAITS)]
    await daemon.executor.apply_catalog(having(make_crew(max_running=2)))
    await daemon.gate.reaches(2)
    await daemon.executor.apply_catalog(having(make_crew(max_running=1, queue=2)))
    assert daemon.executor.load() == {"c": CrewLoad(running=2, waiting=1)}
    ids.append(await daemon.kickoff(*WAITS))
    with pytest.raises(Unavailable, match=r"2 waiting: it takes 2 \(queue\); try"):
        await daemon.kickoff()
    daemon.gate.open()
    assert {(await daemon.end_of(each)).state for each in ids} == {ExecutionState.SUCCESS}


async def test_reload_without_a_crew_ends_what_waits_and_not_what_runs(
    start_daemon: StartDaemon,
) -> None:
    daemon = await start_daemon(make_crew(max_running=1))
    running, waiting = await one_running_one_waiting(daemon)
    await daemon.executor.apply_catalog(having(make_crew("other")))
    ended = await daemon.end_of(waiting)
    assert (ended.status, ended.error) == (Status.INTERRUPTED, NEVER_RUN)
    with pytest.raises(NotFound):
        await daemon.kickoff()
    daemon.gate.open()
    assert (await daemon.end_of(running)).state is ExecutionState.SUCCESS
    await daemon.comes_to_rest()
    assert set(daemon.executor.load()) == {"other"}


async def test_crew_that_is_taken_out_and_put_back_runs_on(start_daemon: StartDaemon) -> None:
    daemon = await start_daemon(make_crew(max_running=1))
    running, _ = await one_running_one_waiting(daemon)
    await daemon.executor.apply_catalog(having(make_crew("other")))
    await daemon.executor.apply_catalog(having(make_crew(max_running=1)))
    new = await daemon.kickoff()
    assert daemon.executor.load()["c"] == CrewLoad(running=1, waiting=1)
    daemon.gate.open()
    assert (await daemon.end_of(running)).state is ExecutionState.SUCCESS
    assert (await daemon.end_of(new)).state is ExecutionState.SUCCESS


async def test_waiting_execution_of_a_broken_crew_waits_until_it_is_mended(
    start_daemon: StartDaemon,
) -> None:
    daemon = await start_daemon(make_crew(max_running=1))
    running, waiting = await one_running_one_waiting(daemon)
    await daemon.executor.apply_catalog(Catalog({}, (BROKEN_C,)))
    daemon.gate.open()
    assert (await daemon.end_of(running)).state is ExecutionState.SUCCESS
    await its_place_is_free(daemon)
    assert (await daemon.look(waiting)).state is ExecutionState.PENDING
    await daemon.executor.apply_catalog(having(make_crew(max_running=1)))
    assert (await daemon.end_of(waiting)).state is ExecutionState.SUCCESS


async def test_kickoffs_during_a_reload_without_their_crew_are_refused_or_ended(
    start_daemon: StartDaemon,
) -> None:
    """Each of many that come in while the crew goes: none is accepted and forgotten."""
    daemon = await start_daemon(make_crew())
    accepted: list[str] = []
    refused: list[NotFound] = []

    async def kick_off() -> None:
        try:
            accepted.append(await daemon.kickoff())
        except NotFound as refusal:
            refused.append(refusal)

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(kick_off)
            if number == 10:
                nursery.start_soon(daemon.executor.apply_catalog, having(make_crew("other")))
            await trio.lowlevel.checkpoint()
    assert accepted
    assert refused
    for each in accepted:
        await daemon.end_of(each)


async def test_restarted_executor_keeps_the_reloaded_crews(start_daemon: StartDaemon) -> None:
    daemon = await start_daemon(make_crew())
    await daemon.executor.apply_catalog(having(make_crew("new")))
    await daemon.kill()
    daemon.scope, daemon.ended = trio.CancelScope(), trio.Event()
    async with trio.open_nursery() as nursery:
        await nursery.start(daemon.serve)
        assert set(daemon.executor.load()) == {"new"}
        await daemon.stop()


async def test_broken_crew_with_a_running_execution_is_listed_as_running(
    start_daemon: StartDaemon,
) -> None:
    daemon = await start_daemon(make_crew())
    await daemon.kickoff(*WAITS)
    await daemon.gate.reaches(1)
    await daemon.executor.apply_catalog(Catalog({"other": make_crew("other")}))
    await daemon.executor.apply_catalog(
        Catalog({"other": make_crew("other")}, (BROKEN_C,), default="c")
    )
    other, broken = daemon.executor.listed()
    assert (other.crew.name, other.default, other.paths) == ("other", False, ("/crews/other",))
    assert (broken.crew, broken.default, broken.paths) == (BROKEN_C, True, ("/crews/c", "/"))
    assert (other.load, broken.load) == (CrewLoad(), CrewLoad(running=1))
    daemon.gate.open()
    await daemon.comes_to_rest()
