"""The order of executions, their limits, and workers that start at the same time."""

from __future__ import annotations

import pytest
import trio

from smartlinkd.crews.model import CrewLoad
from smartlinkd.errors import Unavailable
from smartlinkd.store.model import ExecutionState
from tests.crews.executor.conftest import WAITS, StartDaemon, make_crew


async def test_no_more_run_than_max_running(start_daemon: StartDaemon) -> None:
    daemon = await start_daemon(make_crew(max_running=3))
    ids = [await daemon.kickoff(*WAITS) for _ in range(7)]
    await daemon.gate.reaches(3)
    assert daemon.executor.load() == {"c": CrewLoad(running=3, waiting=4)}
    states = [(await daemon.look(each)).state for each in ids]
    assert states == [ExecutionState.RUNNING] * 3 + [ExecutionState.PENDING] * 4
    daemon.gate.open()
    for each in ids:
        assert (await daemon.end_of(each)).state is ExecutionState.SUCCESS
    assert daemon.gate.most_waiting == 3


async def test_busy_crew_holds_up_no_other(start_daemon: StartDaemon) -> None:
    busy = make_crew("busy", max_running=1, queue=1)
    daemon = await start_daemon(busy, make_crew("idle", max_running=1, queue=1))
    waiting = [await daemon.kickoff(*WAITS, crew="busy") for _ in range(2)]
    await daemon.gate.reaches(1)
    assert (
        await daemon.end_of(await daemon.kickoff(crew="idle"), "idle")
    ).state is ExecutionState.SUCCESS
    with pytest.raises(Unavailable):
        await daemon.kickoff(crew="busy")
    daemon.gate.open()
    for each in waiting:
        await daemon.end_of(each, "busy")


async def test_kickoffs_at_the_same_moment_keep_the_queues_bound(start_daemon: StartDaemon) -> None:
    daemon = await start_daemon(make_crew(max_running=2, queue=3))
    ids: list[str] = []
    refused: list[Unavailable] = []

    async def kick_off() -> None:
        try:
            ids.append(await daemon.kickoff(*WAITS))
        except Unavailable as refusal:
            refused.append(refusal)

    async with trio.open_nursery() as nursery:
        for _ in range(40):
            nursery.start_soon(kick_off)
    assert (len(ids), len(refused)) == (5, 35)
    assert {each.id for each in await daemon.store.unfinished()} == set(ids)
    daemon.gate.open()
    for each in ids:
        await daemon.end_of(each)
