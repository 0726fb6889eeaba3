"""Stopping an execution, wherever it is on its way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.crews.execution import Completion, RunningExecution
from smartlinkd.crews.model import ExecutorLimits
from smartlinkd.errors import Invalid, NotFound, Unavailable
from smartlinkd.store.model import ExecutionState, ExecutionUpdate, Status

if TYPE_CHECKING:
    from tests.crews.executor.conftest import House, MakeCrew, OpenHouse

WAITS = ("started", "call gate", "hear", "result ok")
BY = "stopped by a holder of the organization token"


async def test_one_that_waits_for_its_turn(open_house: OpenHouse, crew: MakeCrew) -> None:
    house = await open_house(crew(max_running=1))
    running, waiting, next_one = [await house.kickoff(*WAITS) for _ in range(3)]
    await house.stop_one(waiting)
    end = await house.look(waiting)
    assert (end.state, end.status) == (ExecutionState.FAILED, Status.STOPPED)
    assert end.error == f"{BY} before its turn came"
    assert (end.started_at, end.finished_at is not None) == (None, True)
    assert await house.story(waiting) == ["crew_kickoff_failed"]
    house.gate.open()
    for each in (running, next_one):
        assert (await house.end_of(each)).state is ExecutionState.SUCCESS


async def test_one_that_waits_whose_end_is_on_the_disk_though_the_journal_said_that_it_is_not(
    open_house: OpenHouse, crew: MakeCrew, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = await open_house(crew(max_running=1))
    _, waiting = [await house.kickoff(*WAITS) for _ in range(2)]
    await house.gate.reaches(1)
    record = house.store.record
    said: list[str] = []

    async def doubtful(*args: Any) -> None:
        await record(*args)
        if not said:
            said.append("no")
            raise Unavailable("the disk did not say whether it is", retry_after=1)

    monkeypatch.setattr(house.store, "record", doubtful)
    await house.stop_one(waiting)
    assert said
    assert (await house.look(waiting)).status is Status.STOPPED
    assert await house.story(waiting) == ["crew_kickoff_failed"]


async def test_one_that_runs(house: House) -> None:
    kickoff_id = await house.kickoff("started", "task a", "call gate", "hear", "result ok")
    await house.gate.reaches(1)
    await house.stop_one(kickoff_id)
    end = await house.look(kickoff_id)
    assert (end.state, end.status, end.current_task) == (
        ExecutionState.FAILED,
        Status.STOPPED,
        None,
    )
    assert end.error == f"{BY}; the worker ended without a signal"
    assert (await house.story(kickoff_id))[-1] == "crew_kickoff_failed"
    assert list((house.folder / "runs").iterdir()) == []
    assert house.executor.load()["c"].running == 0
    await house.gate.reaches(0)


async def test_one_that_needs_a_signal(house: House) -> None:
    kickoff_id = await house.kickoff("started", "log here", "hang")
    await house.hears(kickoff_id, "here")
    await house.stop_one(kickoff_id)
    assert (await house.look(kickoff_id)).error == f"{BY}; the worker ended at SIGTERM"


async def test_one_that_ignores_it_all(open_house: OpenHouse, crew: MakeCrew) -> None:
    house = await open_house(crew(grace=0.2))
    kickoff_id = await house.kickoff("started", "deaf", "log here", "hang")
    await house.hears(kickoff_id, "here")
    await house.stop_one(kickoff_id)
    assert (await house.look(kickoff_id)).error == (
        f"{BY}; the worker ignored the message `stop` and SIGTERM, and was killed"
    )


async def test_one_whose_worker_is_just_being_started(house: House) -> None:
    kickoff_id = await house.kickoff("started", "hang")
    await house.stop_one(kickoff_id)
    end = await house.look(kickoff_id)
    assert end.status is Status.STOPPED
    assert end.error is not None
    assert end.error.startswith(BY)


async def test_one_that_has_ended(house: House) -> None:
    kickoff_id = await house.kickoff()
    before = await house.end_of(kickoff_id)
    with pytest.raises(Invalid, match="has ended already"):
        await house.stop_one(kickoff_id)
    assert await house.look(kickoff_id) == before


async def test_one_that_there_is_not(house: House) -> None:
    with pytest.raises(NotFound):
        await house.stop_one("no-such-id")


async def test_one_about_which_a_human_is_asked(house: House) -> None:
    kickoff_id = await house.kickoff("started", "task a", "ask a", "hear", "done a", "result ok")
    await house.reaches(kickoff_id, Status.WAITING_FOR_HUMAN_INPUT)
    await house.stop_one(kickoff_id)
    end = await house.look(kickoff_id)
    assert (end.status, end.current_task) == (Status.STOPPED, None)
    with pytest.raises(Invalid, match="not waiting"):
        await house.resume(kickoff_id)


async def test_a_user_is_named_as_the_one_who_stopped_it(house: House) -> None:
    kickoff_id = await house.kickoff(*WAITS, user="an")
    await house.gate.reaches(1)
    await house.stop_one(kickoff_id, user="an")
    error = (await house.look(kickoff_id)).error
    assert error == "stopped by user an; the worker ended without a signal"


@pytest.mark.parametrize("waits", [False, True])
async def test_twice_at_the_same_moment(open_house: OpenHouse, crew: MakeCrew, waits: bool) -> None:
    house = await open_house(crew(max_running=1))
    if waits:
        await house.kickoff(*WAITS)
    kickoff_id = await house.kickoff(*WAITS)
    await house.gate.reaches(1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(house.stop_one, kickoff_id)
        nursery.start_soon(house.stop_one, kickoff_id)
    assert (await house.look(kickoff_id)).status is Status.STOPPED
    assert (await house.story(kickoff_id)).count("crew_kickoff_failed") == 1


async def test_who_stops_first_and_goes_away_has_stopped_it(
    house: House, mock_clock: MockClock
) -> None:
    kickoff_id = await house.kickoff("started", "call gate", "hang", user="an")
    await house.gate.reaches(1)
    async with trio.open_nursery() as askers:
        askers.start_soon(house.stop_one, kickoff_id, "an")
        await house.all_asked()
        askers.cancel_scope.cancel()
    async with trio.open_nursery() as askers:
        askers.start_soon(house.stop_one, kickoff_id)
        await house.all_asked()
        mock_clock.jump(1)
    end = await house.look(kickoff_id)
    assert (end.status, end.error) == (
        Status.STOPPED,
        "stopped by user an; the worker ended at SIGTERM",
    )


@pytest.mark.parametrize("waits", [False, True])
async def test_who_goes_away_at_once_has_stopped_it(
    open_house: OpenHouse, crew: MakeCrew, waits: bool
) -> None:
    house = await open_house(crew(max_running=1))
    if waits:
        await house.kickoff(*WAITS)
    kickoff_id = await house.kickoff(*WAITS)
    await house.gate.reaches(1)
    with trio.CancelScope() as asked:
        asked.cancel()
        await house.stop_one(kickoff_id)
    house.gate.open()
    assert (await house.end_of(kickoff_id)).status is Status.STOPPED


async def test_one_that_comes_to_its_end_first(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stop comes while its end is being recorded."""
    kickoff_id = await house.kickoff("started", "call gate", "hear", "result ok")
    await house.gate.reaches(1)
    ending, stopping = trio.Event(), trio.Event()
    record, cancel = house.store.record, RunningExecution.cancel

    async def hold_up(execution_id: str, entry: ExecutionUpdate) -> None:
        if entry.change.get("status") is Status.COMPLETED:
            ending.set()
            await stopping.wait()
        await record(execution_id, entry)

    def note(self: RunningExecution, *args: Any) -> None:
        stopping.set()
        cancel(self, *args)

    monkeypatch.setattr(house.store, "record", hold_up)
    monkeypatch.setattr(RunningExecution, "cancel", note)
    house.gate.open()
    await ending.wait()
    with pytest.raises(Invalid, match="ended by itself before it was stopped"):
        await house.stop_one(kickoff_id)
    assert (await house.look(kickoff_id)).state is ExecutionState.SUCCESS


async def test_many_who_wait_for_a_stop_hold_up_nobody(
    open_house: OpenHouse, crew: MakeCrew, mock_clock: MockClock
) -> None:
    """The clock stands still, so a worker that ignores them has all the time there is."""
    house = await open_house(crew(), crew("other"))
    kickoff_id = await house.kickoff("started", "deaf", "call gate", "hang")
    await house.gate.reaches(1)
    async with trio.open_nursery() as askers:
        for _ in range(ExecutorLimits().calls_at_once // 100 + 1):
            for _ in range(100):
                askers.start_soon(house.stop_one, kickoff_id)
            await house.all_asked()
        other = await house.kickoff(crew="other")
        assert (await house.end_of(other, "other")).state is ExecutionState.SUCCESS
        await house.comes_to_rest("other")  # its worker's end has its own time, which would jump
        for _ in range(2):  # the time for `stop`, and the time for SIGTERM
            mock_clock.jump(1)
            await wait_all_tasks_blocked()
    assert (await house.look(kickoff_id)).status is Status.STOPPED


async def test_completion_whose_outcome_is_recorded_does_not_wait_for_the_worker() -> None:
    completion = Completion(0.0)
    completion.status = Status.STOPPED
    await completion.wait_stopped()


async def test_completion_with_another_outcome_was_not_stopped() -> None:
    completion = Completion(0.0)
    completion.status = Status.COMPLETED
    with pytest.raises(Invalid, match="ended by itself before it was stopped"):
        await completion.wait_stopped()


async def test_completion_that_is_not_recorded_in_time_is_unavailable() -> None:
    with pytest.raises(Unavailable, match="cannot record its end"):
        await Completion(0.0).wait_stopped()
