"""A human is asked: who may answer, what the answer changes, and what may come in between."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import trio

from smartlinkd.crews.outcome import ExitReason
from smartlinkd.crews.worker import Worker
from smartlinkd.errors import Invalid, NotFound
from smartlinkd.store.model import (
    ExecutionState,
    ExecutionUpdate,
    Status,
    StoreLimits,
    WebhookTarget,
)

if TYPE_CHECKING:
    from tests.crews.executor.conftest import House, MakeCrew, OpenHouse

ASKS = ("started", "task a", "ask a", "hear", "done a", "result ok")
WAITING = Status.WAITING_FOR_HUMAN_INPUT


async def test_the_question_and_the_answer(house: House) -> None:
    kickoff_id = await house.kickoff(*ASKS)
    asked = await house.reaches(kickoff_id, WAITING)
    assert (asked.state, asked.current_task) == (ExecutionState.RUNNING, "a")
    answered = await house.resume(kickoff_id, text="make it shorter", approved=False)
    assert answered.status in (Status.RUNNING, Status.COMPLETED)
    end = await house.end_of(kickoff_id)
    assert end.status is Status.COMPLETED
    (heard,) = map(json.loads, await house.logs(kickoff_id))
    assert heard == {
        "type": "human_feedback",
        "task_id": "a",
        "feedback": "make it shorter",
        "approved": False,
    }
    events = {event.type: event.data for event in await house.events(kickoff_id)}
    assert events["human_input_requested"] == {"task_id": "a", "prompt": "good?"}
    assert events["human_feedback_received"] == {"task_id": "a", "approved": False}


async def test_a_second_question_is_asked_and_answered(house: House) -> None:
    kickoff_id = await house.kickoff(
        "started", "task a", "ask a", "hear", "ask a", "hear", "done a", "result ok"
    )
    for _ in range(2):
        await house.reaches(kickoff_id, WAITING)
        await house.resume(kickoff_id)
        await house.gate.reaches(0)
    assert (await house.end_of(kickoff_id)).state is ExecutionState.SUCCESS


async def test_the_id_of_what_is_asked_is_told_whatever_else_begins(house: House) -> None:
    kickoff_id = await house.kickoff(
        *("started", "task a", "ask a", "task b", "task c", "done b", "call gate"),
        *("hear", "hear", "done a", "done c", "result ok"),
    )
    await house.gate.reaches(1)
    now = await house.look(kickoff_id)
    assert (now.status, now.current_task, now.completed_tasks) == (WAITING, "a", 1)
    answered = await house.resume(kickoff_id)
    assert answered.current_task == "task c"
    house.gate.open()
    assert (await house.end_of(kickoff_id)).state is ExecutionState.SUCCESS


async def test_an_answer_about_another_task_changes_nothing(house: House) -> None:
    kickoff_id = await house.kickoff(*ASKS)
    await house.reaches(kickoff_id, WAITING)
    with pytest.raises(Invalid, match="task_id"):
        await house.resume(kickoff_id, "b")
    assert (await house.look(kickoff_id)).status is WAITING
    await house.resume(kickoff_id)
    assert (await house.end_of(kickoff_id)).state is ExecutionState.SUCCESS


async def test_an_answer_that_nobody_has_asked_for(open_house: OpenHouse, crew: MakeCrew) -> None:
    house = await open_house(crew(max_running=1))
    running = await house.kickoff("started", "call gate", "hear", "result ok")
    waiting = await house.kickoff()
    await house.gate.reaches(1)
    for kickoff_id in (running, waiting):
        with pytest.raises(Invalid, match="not waiting for human input"):
            await house.resume(kickoff_id)
    house.gate.open()
    await house.end_of(waiting)
    with pytest.raises(Invalid, match="not waiting for human input"):
        await house.resume(waiting)
    with pytest.raises(NotFound):
        await house.resume("no-such-id")


async def test_of_two_answers_at_the_same_moment_one_counts(house: House) -> None:
    kickoff_id = await house.kickoff(*ASKS)
    await house.reaches(kickoff_id, WAITING)
    refused: list[Invalid] = []

    async def answer(text: str) -> None:
        try:
            await house.resume(kickoff_id, text=text)
        except Invalid as refusal:
            refused.append(refusal)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(answer, "one")
        nursery.start_soon(answer, "two")
    await house.end_of(kickoff_id)
    assert len(refused) == 1
    assert (await house.story(kickoff_id)).count("human_feedback_received") == 1


async def test_a_worker_that_dies_while_it_asks(house: House) -> None:
    kickoff_id = await house.kickoff("started", "task a", "ask a", "exit 5")
    end = await house.end_of(kickoff_id)
    assert end.error is not None
    assert end.error.startswith("the worker exited with code 5 without a result")
    with pytest.raises(Invalid, match="not waiting"):
        await house.resume(kickoff_id)


async def test_an_answer_to_a_worker_that_says_no_more_and_has_not_ended(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    says_no_more = trio.Event()
    end = Worker.exit_reason

    async def noting(self: Worker) -> ExitReason:
        says_no_more.set()
        return await end(self)

    monkeypatch.setattr(Worker, "exit_reason", noting)
    kickoff_id = await house.kickoff("started", "task a", "ask a", "close", "hang")
    await says_no_more.wait()
    with pytest.raises(Invalid, match="not waiting for human input"):
        await house.resume(kickoff_id)
    assert "closed its descriptor" in ((await house.end_of(kickoff_id)).error or "")


def hold_up_answers(house: House, monkeypatch: pytest.MonkeyPatch) -> tuple[trio.Event, trio.Event]:
    """Set when an answer is to be recorded; and to be set when it may be."""
    record = house.store.record
    recording, go_on = trio.Event(), trio.Event()

    async def hold_up(execution_id: str, entry: ExecutionUpdate) -> None:
        if entry.change.get("status") is Status.RUNNING:
            recording.set()
            await go_on.wait()
        await record(execution_id, entry)

    monkeypatch.setattr(house.store, "record", hold_up)
    return recording, go_on


async def test_an_answer_that_is_cut_off_by_a_stop_is_no_success(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`resume` says that it was recorded, so it does not say so when it was not."""
    kickoff_id = await house.kickoff(*ASKS)
    await house.reaches(kickoff_id, WAITING)
    recording, _ = hold_up_answers(house, monkeypatch)
    async with trio.open_nursery() as nursery:

        async def answer() -> None:
            with pytest.raises(
                Invalid, match="has ended; /events tells whether the answer was taken"
            ):
                await house.resume(kickoff_id)

        nursery.start_soon(answer)
        await recording.wait()
        await house.stop_one(kickoff_id)
    assert "human_feedback_received" not in await house.story(kickoff_id)


async def test_what_is_said_while_an_answer_is_recorded_is_of_one_that_runs(
    house: House, monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery
) -> None:
    """Its `current_task` is not a question that has been answered."""
    told_of = ("started", "task a", "ask a", "call gate", "hear", "task b", "log it goes on")
    kickoff_id = await house.kickoff(*told_of, "hear", "done b", "done a", "result ok")
    await house.gate.reaches(1)
    assert (await house.look(kickoff_id)).current_task == "a"
    answered, go_on = hold_up_answers(house, monkeypatch)
    nursery.start_soon(house.resume, kickoff_id)
    await answered.wait()
    house.gate.open()
    await house.hears(kickoff_id, "it goes on")
    assert (await house.look(kickoff_id)).current_task == "task b"
    go_on.set()
    assert (await house.end_of(kickoff_id)).state is ExecutionState.SUCCESS


# Webhooks


def target(kind: str, path: str) -> WebhookTarget:
    events = ("human_feedback_received", "task_completed") if kind == "stream" else ()
    return WebhookTarget(kind, f"https://example.com/{path}", events)  # type: ignore[arg-type]


async def test_webhooks_of_the_same_kinds_are_replaced_from_the_answer_on(house: House) -> None:
    old = (target("task", "old"), target("step", "old"), target("stream", "old"))
    kickoff_id = await house.kickoff(*ASKS, webhooks=old)
    await house.reaches(kickoff_id, WAITING)
    new = (target("task", "new"), target("stream", "new-1"), target("stream", "new-2"))
    answered = await house.resume(kickoff_id, webhooks=new)
    assert answered.webhooks == (target("step", "old"), *new)
    await house.end_of(kickoff_id)
    called = [(url.rpartition("/")[2], kind) for kind, url, _ in house.owed()]
    streams = [("new-1", "stream"), ("new-2", "stream")]
    assert called == [*streams, ("new", "task"), *streams]


async def test_without_new_ones_the_webhooks_stay(house: House) -> None:
    old = (target("task", "old"),)
    kickoff_id = await house.kickoff(*ASKS, webhooks=old)
    await house.reaches(kickoff_id, WAITING)
    assert (await house.resume(kickoff_id)).webhooks == old


@pytest.mark.parametrize("store_limits", [StoreLimits(targets=3)])
async def test_webhooks_that_are_too_many_are_refused_and_the_question_stays(house: House) -> None:
    old = tuple(target("step", f"old-{number}") for number in range(3))
    kickoff_id = await house.kickoff(*ASKS, webhooks=old)
    await house.reaches(kickoff_id, WAITING)
    with pytest.raises(Invalid, match="webhooks: more than 3"):
        await house.resume(kickoff_id, webhooks=(target("task", "one"),))
    now = await house.look(kickoff_id)
    assert (now.status, now.current_task, now.webhooks) == (WAITING, "a", old)
    await house.resume(kickoff_id)
    assert (await house.end_of(kickoff_id)).state is ExecutionState.SUCCESS
