"""Whoever asks may go away at any step, and the daemon may end at any: what was begun comes to an
end, once, and nothing is left of it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
import trio

from smartlinkd.errors import Invalid, Refused, Unavailable
from smartlinkd.store.model import Execution, ExecutionState, Status

if TYPE_CHECKING:
    from tests.crews.executor.conftest import House, MakeCrew, NewHouse
    from tests.crews.executor.trouble.conftest import OpenedHouse
    from tests.every_step.driver import AtEveryStep
    from tests.every_step.strike import Strike

QUICK = ("started", "result ok")
ASKS = ("started", "task a", "ask a", "hear", "done a", "result ok")


@pytest.mark.parametrize("has_key", [True, False])
def test_who_kicks_off_leaves_at_every_step(
    at_every_step: AtEveryStep, opened_house: OpenedHouse, has_key: bool
) -> None:
    async def scenario(strike: Strike, house: House) -> None:
        kickoff_id = None
        key = f"key {strike.at}" if has_key else None
        with trio.CancelScope() as asker:
            strike.arm(asker.cancel)
            kickoff_id = await house.kickoff(*QUICK, key=key)
        strike.disarm()
        again = await house.kickoff(*QUICK, key=key)
        assert (kickoff_id in (again, None)) if has_key else (kickoff_id != again)
        for each in {again, *await unfinished(house)}:
            assert (await house.end_of(each)).state is ExecutionState.SUCCESS
        await idle(house)

    assert at_every_step.within(opened_house, scenario) > 5


def test_who_stops_leaves_at_every_step(
    at_every_step: AtEveryStep, opened_house: OpenedHouse
) -> None:
    async def scenario(strike: Strike, house: House) -> None:
        house.gate.close()
        kickoff_id = await house.kickoff("started", "call gate", "hear", "result ok")
        await house.gate.reaches(1)
        with trio.CancelScope() as asker:
            strike.arm(asker.cancel)
            await house.stop_one(kickoff_id)
        strike.disarm()
        house.gate.open()
        end = await house.end_of(kickoff_id)
        ended_once(end, await house.story(kickoff_id))
        assert end.status is Status.STOPPED
        await idle(house)

    assert at_every_step.within(opened_house, scenario) > 10


def test_who_stops_one_that_waits_leaves_at_every_step(
    at_every_step: AtEveryStep, opened_house: OpenedHouse
) -> None:
    async def scenario(strike: Strike, house: House) -> None:
        house.gate.close()
        ids = [await house.kickoff("started", "call gate", "hear", "result ok") for _ in range(3)]
        await house.gate.reaches(2)
        with trio.CancelScope() as asker:
            strike.arm(asker.cancel)
            await house.stop_one(ids[2])
        strike.disarm()
        house.gate.open()
        for each in ids:
            ended_once(await house.end_of(each), await house.story(each))
        assert (await house.look(ids[2])).status is Status.STOPPED
        await idle(house)

    assert at_every_step.within(opened_house, scenario, stride=2) > 5


def test_who_answers_leaves_at_every_step(
    at_every_step: AtEveryStep, opened_house: OpenedHouse
) -> None:
    async def scenario(strike: Strike, house: House) -> None:
        kickoff_id = await house.kickoff(*ASKS)
        await house.reaches(kickoff_id, Status.WAITING_FOR_HUMAN_INPUT)
        with trio.CancelScope() as asker:
            strike.arm(asker.cancel)
            await house.resume(kickoff_id)
        strike.disarm()
        if "human_feedback_received" not in await house.story(kickoff_id):
            try:
                await house.resume(kickoff_id)
            except Refused:  # it is being recorded
                assert asker.cancelled_caught
        assert (await house.end_of(kickoff_id)).state is ExecutionState.SUCCESS
        assert (await house.story(kickoff_id)).count("human_feedback_received") == 1
        await idle(house)

    assert at_every_step.within(opened_house, scenario) > 10


def test_an_answer_comes_at_every_step_of_its_workers_end(
    at_every_step: AtEveryStep, opened_house: OpenedHouse
) -> None:
    """Too late or not, it is nobody else's trouble."""

    async def scenario(strike: Strike, house: House) -> None:
        house.gate.close()
        kickoff_id = await house.kickoff(
            "started", "task a", "ask a", "call gate", "hear", "exit 3"
        )
        await house.gate.reaches(1)
        come = trio.Event()

        async def answer() -> None:
            await come.wait()
            with suppress(Invalid):
                await house.resume(kickoff_id)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer)
            strike.arm(come.set)
            house.gate.open()
            assert (await house.end_of(kickoff_id)).status is Status.ERROR
            await idle(house)
            strike.disarm()
            come.set()

    assert at_every_step.within(opened_house, scenario, seeds=4) > 20


@pytest.mark.parametrize("on_restart", ["fail", "rerun"])
def test_the_daemon_ends_at_every_step_of_a_run(
    at_every_step: AtEveryStep,
    opened_house: OpenedHouse,
    new_house: NewHouse,
    crew: MakeCrew,
    on_restart: str,
) -> None:
    """At every seventh, for they are many."""
    one = crew(on_restart=on_restart)

    async def scenario(strike: Strike, _: House) -> None:
        known: list[str] = []
        house = new_house(one)

        async def use() -> None:
            with suppress(Unavailable):
                known.append(await house.kickoff("started", "task a", "done a", "result ok"))
                await house.end_of(known[0])
            await house.kill()

        async with trio.open_nursery() as nursery:
            await nursery.start(house.serve)
            strike.arm(house.scope.cancel)
            nursery.start_soon(use)
            await house.ended.wait()
            strike.disarm()
            nursery.cancel_scope.cancel()
        assert list((house.folder / "runs").iterdir()) == []

        house = new_house(one)
        async with trio.open_nursery() as nursery:
            await nursery.start(house.serve)
            for each in {*known, *await unfinished(house)}:
                end = await house.end_of(each)
                if on_restart == "rerun":
                    assert (end.state, end.completed_tasks) == (ExecutionState.SUCCESS, 1)
                ended_once(end, await house.story(each))
            await idle(house)
            await house.kill()

    assert at_every_step.within(opened_house, scenario, stride=7) > 50


def ended_once(end: Execution, story: list[str]) -> None:
    assert end.state.ended
    assert end.status is not Status.ERROR
    assert sum(kind in ("crew_kickoff_completed", "crew_kickoff_failed") for kind in story) == 1


async def unfinished(house: House) -> list[str]:
    return [each.id for each in await house.store.unfinished()]


async def idle(house: House) -> None:
    """Nothing is left to do, on disk, in hand or in folders."""
    assert await unfinished(house) == []
    await house.comes_to_rest()
    assert list((house.folder / "runs").iterdir()) == []
