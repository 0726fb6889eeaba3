"""A human is asked: who may answer, what the answer changes, and what may come in between."""

from __future__ import annotations

import json

import pytest
import trio
from pydantic import SecretStr
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.errors import Invalid
from smartlinkd.store.model import (
    ExecutionState,
    ExecutionUpdate,
    Status,
    StoreLimits,
    WebhookTarget,
)
from tests.crews.executor.conftest import CrewsDaemon, StartDaemon, make_crew

ASKS = ("started", "task a", "ask a", "echo", "done a", "result ok")
WAITING = Status.WAITING_FOR_HUMAN_INPUT


async def test_answer_reaches_the_worker_that_asked_and_none_about_another_task(
    daemon: CrewsDaemon,
) -> None:
    kickoff_id = await daemon.kickoff(*ASKS)
    asked = await daemon.reaches(kickoff_id, WAITING)
    assert (asked.state, asked.current_task) == (ExecutionState.RUNNING, "a")
    with pytest.raises(Invalid, match="task_id"):
        await daemon.resume(kickoff_id, "b")
    assert (await daemon.look(kickoff_id)).status is WAITING
    await daemon.resume(kickoff_id, text="make it shorter", approved=False)
    assert (await daemon.look(kickoff_id)).status in (Status.RUNNING, Status.COMPLETED)
    end = await daemon.end_of(kickoff_id)
    assert end.status is Status.COMPLETED
    (heard,) = map(json.loads, await daemon.logs(kickoff_id))
    assert heard == {
        "type": "human_feedback",
        "task_id": "a",
        "feedback": "make it shorter",
        "approved": False,
    }
    events = {event.type: event.data for event in await daemon.events(kickoff_id)}
    assert events["human_input_requested"] == {"task_id": "a", "prompt": "good?"}
    assert events["human_feedback_received"] == {"task_id": "a", "approved": False}


async def test_two_answers_at_the_same_moment_count_once(daemon: CrewsDaemon) -> None:
    kickoff_id = await daemon.kickoff(*ASKS)
    await daemon.reaches(kickoff_id, WAITING)
    refused: list[Invalid] = []

    async def answer(text: str) -> None:
        try:
            await daemon.resume(kickoff_id, text=text)
        except Invalid as refusal:
            refused.append(refusal)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(answer, "one")
        nursery.start_soon(answer, "two")
    await daemon.end_of(kickoff_id)
    assert len(refused) == 1
    assert (await daemon.story(kickoff_id)).count("human_feedback_received") == 1


async def test_same_answer_counts_again_when_its_task_is_asked_about_again(
    daemon: CrewsDaemon,
) -> None:
    kickoff_id = await daemon.kickoff(
        *("started", "task a", "ask a", "echo", "ask a", "echo", "done a", "result ok")
    )
    for _ in range(2):
        await daemon.reaches(kickoff_id, WAITING)
        await daemon.resume(kickoff_id)
    assert (await daemon.end_of(kickoff_id)).status is Status.COMPLETED
    assert (await daemon.story(kickoff_id)).count("human_feedback_received") == 2


async def test_answer_cut_off_by_a_stop_is_refused(
    daemon: CrewsDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`resume` says that it was recorded, so it does not say so when it was not."""
    kickoff_id = await daemon.kickoff(*ASKS)
    await daemon.reaches(kickoff_id, WAITING)
    record, recording = daemon.store.record, trio.Event()

    async def hold_up(execution_id: str, entry: ExecutionUpdate) -> None:
        if entry.change.get("status") is Status.RUNNING:
            recording.set()
            await trio.sleep_forever()
        await record(execution_id, entry)

    async def answer() -> None:
        with pytest.raises(Invalid, match=r"not waiting .*; /events tells whether an answer"):
            await daemon.resume(kickoff_id)

    monkeypatch.setattr(daemon.store, "record", hold_up)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(answer)
        await recording.wait()
        await daemon.stop_one(kickoff_id)
    assert "human_feedback_received" not in await daemon.story(kickoff_id)


# Webhooks


def target(kind: str, path: str) -> WebhookTarget:
    events = ("human_feedback_received", "task_completed") if kind == "stream" else ()
    return WebhookTarget(kind, f"https://example.com/{path}", events)  # type: ignore[arg-type]


async def test_webhooks_of_an_answer_replace_those_of_their_kinds(daemon: CrewsDaemon) -> None:
    old = (target("task", "old"), target("step", "old"), target("stream", "old"))
    kickoff_id = await daemon.kickoff(*ASKS, webhooks=old)
    await daemon.reaches(kickoff_id, WAITING)
    new = (target("task", "new"), target("stream", "new-1"), target("stream", "new-2"))
    await daemon.resume(kickoff_id, webhooks=new)
    assert (await daemon.look(kickoff_id)).webhooks == (target("step", "old"), *new)
    await daemon.end_of(kickoff_id)
    called = [(url.rpartition("/")[2], kind) for kind, url, _ in daemon.owed()]
    streams = [("new-1", "stream"), ("new-2", "stream")]
    assert called == [*streams, ("new", "task"), *streams]


NOT_KEPT = WebhookTarget("task", "https://example.com/x", auth=SecretStr("\ud800"))


async def test_answer_whose_webhooks_cannot_be_kept_is_refused_and_the_question_stands(
    daemon: CrewsDaemon,
) -> None:
    old = (target("task", "old"),)
    kickoff_id = await daemon.kickoff(*ASKS, webhooks=old)
    await daemon.reaches(kickoff_id, WAITING)
    for _ in range(2):
        with pytest.raises(Invalid, match="webhook authentication: holds half a character"):
            await daemon.resume(kickoff_id, webhooks=(NOT_KEPT,))
    asked = await daemon.look(kickoff_id)
    assert (asked.status, asked.current_task, asked.webhooks) == (WAITING, "a", old)
    await daemon.resume(kickoff_id)
    assert (await daemon.end_of(kickoff_id)).status is Status.COMPLETED
    story = await daemon.story(kickoff_id)
    assert story.count("human_feedback_received") == 1
    assert [url for _, url, _ in daemon.owed()] == ["https://example.com/old"]


async def test_refused_answer_leaves_the_human_as_much_time_as_before(
    mock_clock: MockClock, start_daemon: StartDaemon
) -> None:
    daemon = await start_daemon(make_crew(deadline=100.0, human_deadline=1000.0, grace=50.0))
    kickoff_id = await daemon.kickoff(*ASKS)
    await daemon.reaches(kickoff_id, WAITING)
    await wait_all_tasks_blocked()
    mock_clock.jump(900)
    with pytest.raises(Invalid):
        await daemon.resume(kickoff_id, webhooks=(NOT_KEPT,))
    mock_clock.jump(99)
    await wait_all_tasks_blocked()
    assert (await daemon.look(kickoff_id)).status is WAITING
    mock_clock.jump(2)
    end = await daemon.end_of(kickoff_id)
    assert end.status is Status.TIMED_OUT
    assert end.error == (
        "nobody answered the question about task a within the 1000 s that its crew gives a human "
        "(human_deadline); the worker ended without a signal"
    )


async def test_answer_that_repeats_the_webhooks_keeps_their_targets(
    start_daemon: StartDaemon,
) -> None:
    """Nobody takes the calls, so targets that an answer replaces would be kept for them."""
    webhooks = (target("task", "x"), target("stream", "x"))
    daemon = await start_daemon(store_limits=StoreLimits(targets=len(webhooks)))
    script = ("started", "task a", *("ask a", "echo") * 3, "done a", "result ok")
    kickoff_id = await daemon.kickoff(*script, webhooks=webhooks)
    for again in (webhooks, webhooks[:1], webhooks):
        await daemon.reaches(kickoff_id, WAITING)
        await daemon.resume(kickoff_id, webhooks=again)
    end = await daemon.end_of(kickoff_id)
    assert (end.status, end.webhooks) == (Status.COMPLETED, webhooks)
