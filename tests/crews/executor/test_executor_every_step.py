"""Whoever asks may go away at any step, and the daemon may end at any: what was begun comes to an
end, once, and nothing is left of it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
import trio

from smartlinkd.errors import Refused, Unavailable
from smartlinkd.store.model import Execution, ExecutionState, Status

if TYPE_CHECKING:
    from tests.crews.executor.conftest import CrewsDaemon, MakeCrew, NewDaemon, RunningDaemon
    from tests.every_step.driver import AtEveryStep
    from tests.every_step.strike import Strike

QUICK = ("started", "result ok")
ASKS = ("started", "task a", "ask a", "hear", "done a", "result ok")


@pytest.mark.parametrize("has_key", [True, False])
def test_kickoff_whose_client_leaves_at_any_step_is_lost_or_whole(
    at_every_step: AtEveryStep, running_daemon: RunningDaemon, has_key: bool
) -> None:
    async def scenario(strike: Strike, daemon: CrewsDaemon) -> None:
        kickoff_id = None
        key = f"key {strike.at}" if has_key else None
        with trio.CancelScope() as asker:
            strike.arm(asker.cancel)
            kickoff_id = await daemon.kickoff(*QUICK, key=key)
        strike.disarm()
        again = await daemon.kickoff(*QUICK, key=key)
        assert (kickoff_id in (again, None)) if has_key else (kickoff_id != again)
        for each in {again, *await unfinished(daemon)}:
            assert (await daemon.end_of(each)).state is ExecutionState.SUCCESS
        await idle(daemon)

    assert at_every_step.within(running_daemon, scenario) > 5


def test_stop_whose_client_leaves_at_any_step_ends_the_execution_once(
    at_every_step: AtEveryStep, running_daemon: RunningDaemon
) -> None:
    async def scenario(strike: Strike, daemon: CrewsDaemon) -> None:
        daemon.gate.close()
        kickoff_id = await daemon.kickoff("started", "call gate", "hear", "result ok")
        await daemon.gate.reaches(1)
        with trio.CancelScope() as asker:
            strike.arm(asker.cancel)
            await daemon.stop_one(kickoff_id)
        strike.disarm()
        daemon.gate.open()
        end = await daemon.end_of(kickoff_id)
        ended_once(end, await daemon.story(kickoff_id))
        assert end.status is Status.STOPPED
        await idle(daemon)

    assert at_every_step.within(running_daemon, scenario) > 10


def test_answer_whose_client_leaves_at_any_step_counts_once(
    at_every_step: AtEveryStep, running_daemon: RunningDaemon
) -> None:
    async def scenario(strike: Strike, daemon: CrewsDaemon) -> None:
        kickoff_id = await daemon.kickoff(*ASKS)
        await daemon.reaches(kickoff_id, Status.WAITING_FOR_HUMAN_INPUT)
        with trio.CancelScope() as asker:
            strike.arm(asker.cancel)
            await daemon.resume(kickoff_id)
        strike.disarm()
        if "human_feedback_received" not in await daemon.story(kickoff_id):
            try:
                await daemon.resume(kickoff_id)
            except Refused:  # it is being recorded
                assert asker.cancelled_caught
        assert (await daemon.end_of(kickoff_id)).state is ExecutionState.SUCCESS
        assert (await daemon.story(kickoff_id)).count("human_feedback_received") == 1
        await idle(daemon)

    assert at_every_step.within(running_daemon, scenario) > 10


@pytest.mark.parametrize("on_restart", ["fail", "rerun"])
def test_execution_ends_once_when_the_daemon_ends_at_any_step(
    at_every_step: AtEveryStep,
    running_daemon: RunningDaemon,
    new_daemon: NewDaemon,
    crew: MakeCrew,
    on_restart: str,
) -> None:
    """At every seventh, for they are many."""
    one = crew(on_restart=on_restart)

    async def scenario(strike: Strike, _: CrewsDaemon) -> None:
        known: list[str] = []
        daemon = new_daemon(one)

        async def use() -> None:
            with suppress(Unavailable):
                known.append(await daemon.kickoff("started", "task a", "done a", "result ok"))
                await daemon.end_of(known[0])
            await daemon.kill()

        async with trio.open_nursery() as nursery:
            await nursery.start(daemon.serve)
            strike.arm(daemon.scope.cancel)
            nursery.start_soon(use)
            await daemon.ended.wait()
            strike.disarm()
            nursery.cancel_scope.cancel()
        assert list((daemon.folder / "runs").iterdir()) == []

        daemon = new_daemon(one)
        async with trio.open_nursery() as nursery:
            await nursery.start(daemon.serve)
            for each in {*known, *await unfinished(daemon)}:
                end = await daemon.end_of(each)
                if on_restart == "rerun":
                    assert (end.state, end.completed_tasks) == (ExecutionState.SUCCESS, 1)
                ended_once(end, await daemon.story(each))
            await idle(daemon)
            await daemon.kill()

    assert at_every_step.within(running_daemon, scenario, stride=7) > 50


def ended_once(end: Execution, story: list[str]) -> None:
    assert end.state.ended
    assert end.status is not Status.ERROR
    assert sum(kind in ("crew_kickoff_completed", "crew_kickoff_failed") for kind in story) == 1


async def unfinished(daemon: CrewsDaemon) -> list[str]:
    return [each.id for each in await daemon.store.unfinished()]


async def idle(daemon: CrewsDaemon) -> None:
    """Nothing is left to do, on disk, in hand or in folders."""
    assert await unfinished(daemon) == []
    await daemon.comes_to_rest()
    assert list((daemon.folder / "runs").iterdir()) == []
