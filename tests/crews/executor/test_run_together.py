"""What a worker says in one go is recorded in one go, and is not less whole for it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from smartlinkd.crews.model import ExecutorLimits
from smartlinkd.store import executions
from smartlinkd.store.actor import Store
from smartlinkd.store.model import (
    ExecutionState,
    ExecutionUpdate,
    Status,
    StoreLimits,
    WebhookTarget,
)

if TYPE_CHECKING:
    from tests.crews.executor.conftest import House

HANG = 20.0  # seconds; what takes that long hangs
MAX_BATCH = ExecutorLimits().max_batch
URL = "https://example.com/"
STARTED = {"type": "started", "total_tasks": 1}
TASK = {"type": "task_started", "task_id": "a", "name": "scout"}
DONE = {"type": "task_completed", "task_id": "a", "output": "two"}
CALL = {"type": "tool_call", "call_id": "1", "tool": "gate", "arguments": {}}
ASK = {"type": "human_input", "task_id": "a", "prompt": "good?"}
RESULT = {"type": "result", "output": "ok"}


def log(text: str) -> dict[str, Any]:
    return {"type": "log", "text": text}


def at_once(*messages: dict[str, Any]) -> str:
    """The step of a script that says all of them in one write."""
    return "raw " + "\n".join(json.dumps(message) for message in messages)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The types of the events that were recorded together, but for those of the kickoff."""
    found: list[list[str]] = []
    record = Store.record

    async def note(self: Store, execution_id: str, entry: ExecutionUpdate) -> None:
        await record(self, execution_id, entry)
        found.append([event.type for event in entry.events])

    monkeypatch.setattr(Store, "record", note)
    return found


async def test_what_is_said_in_one_go_is_recorded_in_one_go(
    house: House, recorded: list[list[str]]
) -> None:
    webhooks = (WebhookTarget("task", URL), WebhookTarget("stream", URL, ("log", "task_started")))
    said = at_once(STARTED, TASK, log("1"), log("2"), DONE, CALL)
    kickoff_id = await house.kickoff(said, "hear", "result ok", webhooks=webhooks)
    await house.gate.reaches(1)
    told = ["task_started", "log", "log", "task_completed", "tool_usage_started"]
    assert recorded == [told]
    now = await house.look(kickoff_id)
    assert (now.total_tasks, now.completed_tasks, now.current_task) == (1, 1, None)
    assert [task.output for task in now.tasks] == ["two"]
    assert [kind for kind, _, _ in house.owed()] == ["stream", "stream", "stream", "task"]
    house.gate.open()
    assert (await house.end_of(kickoff_id)).state is ExecutionState.SUCCESS


async def test_what_comes_with_the_last_message_is_recorded_with_the_end(
    house: House, recorded: list[list[str]]
) -> None:
    end = await house.end_of(await house.kickoff(at_once(STARTED, TASK, log("1"), DONE, RESULT)))
    assert recorded == [["task_started", "log", "task_completed", "crew_kickoff_completed"]]
    assert (end.result, end.total_tasks, end.completed_tasks) == ("ok", 1, 1)
    assert (await house.story(end.id))[1:] == recorded[0]


async def test_one_that_says_much_is_heard_in_parts(
    house: House, recorded: list[list[str]]
) -> None:
    texts = [str(number) for number in range(3 * MAX_BATCH)]
    said = at_once(STARTED, *map(log, texts), RESULT)
    kickoff_id = await house.kickoff(said)
    assert (await house.end_of(kickoff_id)).state is ExecutionState.SUCCESS
    assert await house.logs(kickoff_id) == texts
    assert max(map(len, recorded)) == MAX_BATCH
    assert len(recorded) < 10


async def test_what_it_asks_for_is_done_once_all_is_recorded(
    house: House, recorded: list[list[str]]
) -> None:
    said = at_once(STARTED, TASK, CALL, ASK, log("1"))
    kickoff_id = await house.kickoff(said, "hear", "hear", "done a", "result ok")
    await house.gate.reaches(1)
    first = ["task_started", "tool_usage_started", "human_input_requested", "log"]
    assert recorded == [first]
    assert (await house.look(kickoff_id)).status is Status.WAITING_FOR_HUMAN_INPUT
    await house.resume(kickoff_id)
    house.gate.open()
    assert (await house.end_of(kickoff_id)).state is ExecutionState.SUCCESS
    heard = {json.loads(text)["type"] for text in (await house.logs(kickoff_id))[1:]}
    assert heard == {"tool_result", "human_feedback"}


async def test_nothing_is_begun_for_one_that_has_ended(house: House) -> None:
    end = await house.end_of(await house.kickoff(at_once(STARTED, CALL, RESULT)))
    assert end.result == "ok"
    await house.comes_to_rest()
    assert house.gate.most_waiting == 0
    assert (await house.story(end.id))[1:] == ["tool_usage_started", "crew_kickoff_completed"]


async def test_nobody_is_asked_for_one_that_has_failed(house: House) -> None:
    said = at_once(STARTED, TASK, ASK, {"type": "failed", "error": "no luck"})
    end = await house.end_of(await house.kickoff(said))
    assert (end.status, end.error, end.current_task) == (Status.ERROR, "no luck", None)


async def test_what_was_right_before_a_broken_line_is_kept(house: House) -> None:
    kickoff_id = await house.kickoff(at_once(STARTED, log("1"), log("2")) + "\nnonsense")
    end = await house.end_of(kickoff_id)
    assert end.status is Status.ERROR
    assert "a line is not JSON" in (end.error or "")
    assert await house.logs(kickoff_id) == ["1", "2"]


@pytest.mark.parametrize("store_limits", [StoreLimits(events=3)])
async def test_of_what_cannot_be_kept_the_beginning_is(house: House) -> None:
    said = at_once(STARTED, *(log(text) for text in "123"))
    kickoff_id = await house.kickoff(said, "hang")
    end = await house.end_of(kickoff_id)
    assert "cannot be kept: events: more than 3 in one execution" in (end.error or "")
    assert await house.logs(kickoff_id) == ["1", "2"]


async def test_of_what_comes_with_an_end_that_cannot_be_kept_all_is(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(executions._TEXTS, "result", 9)
    long = RESULT | {"output": "longer than that"}
    kickoff_id = await house.kickoff(at_once(STARTED, log("1"), log("2"), long))
    end = await house.end_of(kickoff_id)
    assert "cannot be kept: result: 16 bytes" in (end.error or "")
    assert await house.logs(kickoff_id) == ["1", "2"]
    assert (await house.story(kickoff_id))[-1] == "crew_kickoff_failed"


async def test_who_waits_for_the_end_is_not_woken_before_it(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be kept together is recorded one by one."""
    monkeypatch.setitem(executions._TEXTS, "result", 9)
    said = at_once(log("1"), log("2"), RESULT | {"output": "longer than that"})
    kickoff_id = await house.kickoff("started", "call gate", "hear", said)
    await house.gate.reaches(1)
    found: list[Status] = []

    async def wait() -> None:
        found.append((await house.executor.wait(house.holder, kickoff_id, HANG)).status)

    async with trio.open_nursery() as waiting:
        waiting.start_soon(wait)
        await wait_all_tasks_blocked()
        house.gate.open()
    assert found == [Status.ERROR]
