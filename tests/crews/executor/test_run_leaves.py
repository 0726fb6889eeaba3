"""What an execution has come to is told with its worker's last message; its program goes later."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.crews.catalog.catalog import Catalog
from smartlinkd.crews.model import CrewLoad
from smartlinkd.errors import Invalid, Unavailable
from smartlinkd.store.model import ExecutionState, Status

if TYPE_CHECKING:
    from tests.crews.executor.conftest import House, MakeCrew, NewHouse, OpenHouse

LINGERS = ("started", "log here", "result ok", "deaf", "hang")
LONG = 1000.0
"""Seconds of a grace that no test waits for."""
BUSY = {"c": CrewLoad(running=1, waiting=0)}


async def test_a_result_is_told_while_its_worker_is_still_there(
    open_house: OpenHouse, crew: MakeCrew
) -> None:
    house = await open_house(crew(grace=LONG))
    end = await house.end_of(await house.kickoff(*LINGERS))
    assert (end.state, end.result) == (ExecutionState.SUCCESS, "ok")
    assert (await house.story(end.id))[-1] == "crew_kickoff_completed"
    assert len(list((house.folder / "runs").iterdir())) == 1
    assert house.executor.load() == BUSY


async def test_it_keeps_its_place_until_its_worker_has_gone(
    open_house: OpenHouse, crew: MakeCrew, caplog: pytest.LogCaptureFixture
) -> None:
    house = await open_house(crew(max_running=1, grace=0.2))
    first = await house.end_of(await house.kickoff(*LINGERS))
    second = await house.end_of(await house.kickoff())
    assert first.finished_at is not None
    assert second.started_at is not None
    assert (second.started_at - first.finished_at).total_seconds() >= 0.2
    assert "does not end within 0.2 s of its last message, and is killed" in caplog.text
    await house.comes_to_rest()
    assert list((house.folder / "runs").iterdir()) == []


async def test_who_comes_after_it_waits_for_its_place_and_takes_none_in_the_queue(
    open_house: OpenHouse, crew: MakeCrew
) -> None:
    house = await open_house(crew(max_running=1, queue=0, grace=0.2))
    await house.end_of(await house.kickoff(*LINGERS))
    next_one = await house.kickoff()
    with pytest.raises(Unavailable) as refusal:
        await house.kickoff()
    assert str(refusal.value) == (
        "the queue of crew c is full, with 1 waiting: it takes 0 (queue), and 1 more whose turn is "
        "about to come; try again later"
    )
    assert (await house.end_of(next_one)).state is ExecutionState.SUCCESS


async def test_places_that_a_reload_took_away_are_nobodys(
    open_house: OpenHouse, crew: MakeCrew
) -> None:
    house = await open_house(crew(max_running=3, queue=0, grace=LONG))
    for _ in range(3):
        await house.end_of(await house.kickoff(*LINGERS))
    await house.executor.apply_catalog(Catalog({"c": crew(max_running=1, queue=0)}, ()))
    await house.kickoff()
    with pytest.raises(Unavailable, match="and 1 more whose turn is about to come"):
        await house.kickoff()


async def test_a_stop_comes_too_late_and_leaves_it_its_time(
    open_house: OpenHouse, crew: MakeCrew
) -> None:
    house = await open_house(crew(grace=LONG))
    kickoff_id = await house.kickoff("started", "result ok", "hang")
    await house.end_of(kickoff_id)
    with pytest.raises(Invalid, match="has ended already"):
        await house.stop_one(kickoff_id)
    await trio.sleep(0.2)  # a signal would have ended it by now
    assert house.executor.load() == BUSY


async def test_what_its_worker_says_after_it_is_not_heard(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    kickoff_id = await house.kickoff("started", "result ok", "log more", "result other", "raw x")
    assert (await house.end_of(kickoff_id)).result == "ok"
    await house.comes_to_rest()
    assert (await house.look(kickoff_id)).result == "ok"
    assert await house.story(kickoff_id) == ["crew_kickoff_started", "crew_kickoff_completed"]
    assert caplog.text.count("a worker says more after its last message") == 1


async def test_of_what_it_says_then_is_warned_while_it_lingers(
    open_house: OpenHouse, crew: MakeCrew, caplog: pytest.LogCaptureFixture
) -> None:
    house = await open_house(crew(grace=0.2))
    await house.end_of(await house.kickoff("started", "result ok", "log more", "hang"))
    await house.comes_to_rest()
    assert caplog.text.count("a worker says more after its last message") == 1


async def test_one_that_says_more_than_its_line_holds_can_end(
    open_house: OpenHouse, crew: MakeCrew
) -> None:
    house = await open_house(crew(grace=LONG))
    much: list[str] = ["log " + 60_000 * "x"] * 20
    kickoff_id = await house.kickoff("started", "result ok", *much)
    assert (await house.end_of(kickoff_id)).result == "ok"
    await house.comes_to_rest()


async def test_one_that_never_stops_talking_is_held_up(
    open_house: OpenHouse,
    crew: MakeCrew,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("smartlinkd.crews.worker_channel.MAX_DISCARDED", 100_000)
    house = await open_house(crew(grace=0.3))
    much: list[str] = ["log " + 60_000 * "x"] * 20
    kickoff_id = await house.kickoff("started", "result ok", *much)
    assert (await house.end_of(kickoff_id)).result == "ok"
    await house.comes_to_rest()
    assert "does not end within 0.3 s of its last message" in caplog.text


async def test_a_tool_that_it_did_not_wait_for_is_given_up(house: House) -> None:
    kickoff_id = await house.kickoff("started", "call gate", "log here", "result ok", "hang")
    assert (await house.end_of(kickoff_id)).state is ExecutionState.SUCCESS
    await house.gate.reaches(0)


async def test_a_human_can_not_answer_any_more(open_house: OpenHouse, crew: MakeCrew) -> None:
    house = await open_house(crew(grace=LONG))
    kickoff_id = await house.kickoff("started", "task a", "ask a", "failed of late", "hang")
    assert (await house.end_of(kickoff_id)).error == "of late"
    with pytest.raises(Invalid, match="has ended, and is not waiting for human input"):
        await house.resume(kickoff_id)


async def test_nor_the_same_once_more(open_house: OpenHouse, crew: MakeCrew) -> None:
    house = await open_house(crew(grace=LONG))
    kickoff_id = await house.kickoff(
        "started", "task a", "ask a", "hear", "done a", "result ok", "hang"
    )
    await house.reaches(kickoff_id, Status.WAITING_FOR_HUMAN_INPUT)
    await house.resume(kickoff_id)
    await house.end_of(kickoff_id)
    with pytest.raises(Invalid, match="has ended, and is not waiting for human input"):
        await house.resume(kickoff_id)


async def test_what_a_failed_one_writes_later_is_logged_as_well(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    script = ("started", "failed no luck", "sleep 0.2", "exit 3")
    failed = await house.end_of(await house.kickoff(*script))
    assert failed.error == "no luck"
    await house.comes_to_rest()
    assert f"execution {failed.id} failed; its worker's standard error ended:\nits last words" in (
        caplog.text
    )


async def test_its_deadline_does_not_count_any_more(
    open_house: OpenHouse, crew: MakeCrew, caplog: pytest.LogCaptureFixture
) -> None:
    house = await open_house(crew(deadline=1.5, grace=2.5))
    kickoff_id = await house.kickoff("started", "result ok", "hang")
    await house.end_of(kickoff_id)
    await house.comes_to_rest()
    assert (await house.look(kickoff_id)).state is ExecutionState.SUCCESS
    assert "does not end within 2.5 s of its last message" in caplog.text


async def test_a_stopping_daemon_has_its_worker_leave_at_once(
    open_house: OpenHouse, crew: MakeCrew
) -> None:
    """By SIGTERM: a message `stop` would find nobody."""
    house = await open_house(crew(grace=LONG))
    kickoff_id = await house.kickoff("started", "result ok", "hang")
    await house.end_of(kickoff_id)
    with trio.fail_after(5):
        await house.stop()


async def test_a_stopping_daemon_gives_its_worker_no_second_grace(
    mock_clock: MockClock, open_house: OpenHouse, crew: MakeCrew
) -> None:
    house = await open_house(crew(grace=50.0))
    await house.end_of(await house.kickoff("started", "deaf", "result ok", "hang"))
    mock_clock.jump(40)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(house.stop)
        await wait_all_tasks_blocked()
        assert not house.ended.is_set()
        mock_clock.jump(11)


async def test_one_that_uses_too_much_memory_then_is_told_of(
    open_house: OpenHouse, crew: MakeCrew, caplog: pytest.LogCaptureFixture
) -> None:
    house = await open_house(crew(memory=64 * 2**20))
    kickoff_id = await house.kickoff("started", "result ok", "fill")
    assert (await house.end_of(kickoff_id)).state is ExecutionState.SUCCESS
    await house.comes_to_rest()
    assert "was ended after its last message by its memory limit: it used" in caplog.text


@pytest.mark.parametrize("in_order", [True, False])
async def test_the_daemon_ends_before_its_worker(
    new_house: NewHouse, crew: MakeCrew, caplog: pytest.LogCaptureFixture, *, in_order: bool
) -> None:
    one = crew(grace=0.2)
    house = new_house(one)
    async with trio.open_nursery() as nursery:
        await nursery.start(house.serve)
        kickoff_id = await house.kickoff(*LINGERS)
        await house.end_of(kickoff_id)
        await (house.stop() if in_order else house.kill())
    assert list((house.folder / "runs").iterdir()) == []
    assert "ended by somebody else" not in caplog.text

    house = new_house(one)
    async with trio.open_nursery() as nursery:
        await nursery.start(house.serve)
        assert (await house.look(kickoff_id)).status is Status.COMPLETED
        assert house.executor.load() == {"c": CrewLoad(running=0, waiting=0)}
        await house.kill()
