"""Executions: they are read as they were written, and an ended one never changes."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from pydantic import JsonValue

from smartlinkd.errors import Invalid
from smartlinkd.store.codec import MAX_VALUE
from smartlinkd.store.database import StoreDatabase
from smartlinkd.store.executions import EVENT_PART_BYTES
from smartlinkd.store.model import (
    Execution,
    ExecutionEvent,
    ExecutionState,
    NewEvent,
    Status,
    TaskRecord,
    WebhookTarget,
)
from tests.store.calls import NOW, create, events, known, new, record, unfinished


def test_created_execution_is_read_as_it_was_given(store: StoreDatabase) -> None:
    inputs: dict[str, JsonValue] = {
        "n": 1,
        "f": 0.1,
        "big": 10**40,
        "deep": [{"t": None}, True],
        "ô": "đ 🧋\0",
    }
    hooks = (
        WebhookTarget("task", "https://a.example/t"),
        WebhookTarget("stream", "https://a.example/s", ("x", "y")),
    )
    given = new(inputs=inputs, meta={"ref": [1]}, webhooks=hooks, owner="an")

    assert store.executions.create(given) == given.id
    assert known(store, given.id) == Execution(
        id=given.id,
        crew="deal-post",
        owner="an",
        inputs=inputs,
        meta={"ref": [1]},
        webhooks=hooks,
        status=Status.PENDING,
        result=None,
        result_json=None,
        error=None,
        current_task=None,
        completed_tasks=0,
        tasks=(),
        total_tasks=None,
        last_step=None,
        created_at=NOW,
        started_at=None,
        finished_at=None,
        sequence=1,
    )


def test_change_is_kept_leaves_the_rest_and_is_cleared_by_none(store: StoreDatabase) -> None:
    execution_id = create(store)
    before = known(store, execution_id)
    later = NOW + timedelta(seconds=2)
    record(store, execution_id, status=Status.RUNNING, started_at=later)
    record(
        store,
        execution_id,
        status=Status.WAITING_FOR_HUMAN_INPUT,
        current_task="t2",
        total_tasks=3,
        last_step={"thought": "hm"},
        result="half",
        result_json=[1],
        error="none yet",
    )

    execution = known(store, execution_id)
    assert (execution.status, execution.state) == (
        Status.WAITING_FOR_HUMAN_INPUT,
        ExecutionState.RUNNING,
    )
    assert execution.started_at == later
    assert (execution.current_task, execution.total_tasks) == ("t2", 3)
    assert execution.last_step == {"thought": "hm"}
    assert (execution.result, execution.result_json, execution.error) == ("half", [1], "none yet")

    names = ("started_at", "current_task", "total_tasks", "last_step", "result", "result_json")
    cleared: dict[str, Any] = dict.fromkeys(names)
    record(store, execution_id, status=Status.PENDING, error=None, **cleared)
    assert known(store, execution_id) == before


def test_tasks_are_added_in_their_order_and_dropped_by_another_run(store: StoreDatabase) -> None:
    execution_id = create(store)
    first = TaskRecord("t1", "scout", "Scout", "find", "links", "found", {"n": 1}, 1.5)
    record(store, execution_id, new_tasks=[first])
    record(store, execution_id, new_tasks=[TaskRecord("t2"), TaskRecord("t3")])

    execution = known(store, execution_id)

    assert execution.tasks == (first, TaskRecord("t2"), TaskRecord("t3"))
    assert execution.completed_tasks == 3

    again = [TaskRecord("t1", "anew")]
    record(store, execution_id, status=Status.PENDING, drop_tasks=True, new_tasks=again)

    assert known(store, execution_id).tasks == tuple(again)
    assert known(store, execution_id).completed_tasks == 1


def test_events_are_numbered_from_one_without_gaps_and_counted_by_type(
    store: StoreDatabase,
) -> None:
    execution_id, other = create(store), create(store)
    record(store, execution_id, NewEvent("a", NOW, {"x": 1}), NewEvent("b", NOW))
    record(store, other, NewEvent("a", NOW))
    record(store, execution_id, NewEvent("a", NOW))

    assert events(store, execution_id) == [
        ExecutionEvent(1, NOW, "a", b'{"x":1}', size=7),
        ExecutionEvent(2, NOW, "b", b"", size=0),
        ExecutionEvent(3, NOW, "a", b"", size=0),
    ]
    assert store.executions.count_events(execution_id, "a") == 2
    assert store.executions.count_events("unknown", "a") == 0
    (second,) = store.executions.events(execution_id, after=1, limit=1)
    assert second.type == "b"
    assert store.executions.events(execution_id, after=3, limit=10) == []
    assert events(store, "unknown") == []


def test_events_larger_than_an_answer_come_in_several(store: StoreDatabase) -> None:
    execution_id = create(store)
    two_fit = NewEvent("a", NOW, "x" * (EVENT_PART_BYTES * 2 // 5))
    record(store, execution_id, two_fit, two_fit, two_fit)

    assert [event.number for event in events(store, execution_id)] == [1, 2]
    (last,) = store.executions.events(execution_id, after=2, limit=10)
    assert last.number == 3


ONE_PART = EVENT_PART_BYTES - len('""')
"""The characters of the largest text that is not divided."""


@pytest.mark.parametrize(
    "text",
    [
        *("x" * (ONE_PART + more) for more in (-1, 0, 1)),
        # The part ends in each byte of a character.
        *("x" * ahead + each * ONE_PART for each in "xố😀" for ahead in range(4)),
    ],
    ids=lambda text: f"{len(text)} {text[-1]}",
)
def test_large_event_comes_in_parts_of_whole_characters(store: StoreDatabase, text: str) -> None:
    execution_id = create(store)
    record(store, execution_id, NewEvent("a", NOW, text), NewEvent("b", NOW))

    parts = events(store, execution_id)
    while not parts[-1].is_last_part:
        parts += store.executions.events(execution_id, after=0, limit=10, offset=parts[-1].end)

    assert {part.number for part in parts} == {1}
    assert json.loads("".join(part.json.decode() for part in parts)) == text
    assert max(len(part.json) for part in parts) <= EVENT_PART_BYTES
    assert (len(parts) == 1) is (parts[0].size <= EVENT_PART_BYTES)


@pytest.mark.parametrize(
    ("status", "state"),
    [
        (Status.COMPLETED, ExecutionState.SUCCESS),
        (Status.ERROR, ExecutionState.FAILED),
        (Status.STOPPED, ExecutionState.FAILED),
        (Status.TIMED_OUT, ExecutionState.FAILED),
        (Status.INTERRUPTED, ExecutionState.FAILED),
    ],
)
def test_ended_execution_never_changes(
    store: StoreDatabase, status: Status, state: ExecutionState
) -> None:
    execution_id = create(store)
    record(store, execution_id, status=status, finished_at=NOW)
    ended = known(store, execution_id)
    assert ended.state is state

    with pytest.raises(Invalid, match=f"{execution_id} has ended"):
        record(store, execution_id, NewEvent("late", NOW), status=Status.RUNNING, result="late")

    assert store.executions.read(execution_id) == ended
    assert events(store, execution_id) == []


def test_refused_record_changes_nothing(store: StoreDatabase) -> None:
    execution_id = create(store)
    before = known(store, execution_id)

    with pytest.raises(Invalid, match=r"^task: cannot be kept as JSON"):
        record(
            store,
            execution_id,
            NewEvent("a", NOW),
            new_tasks=[TaskRecord("good"), TaskRecord("t", output="\ud800")],
        )

    assert store.executions.read(execution_id) == before
    assert events(store, execution_id) == []


TOO_DEEP: JsonValue = json.loads("[" * 250 + "]" * 250)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), "\ud800", {"\udfff": 1}, TOO_DEEP])
def test_value_that_is_no_json_is_refused_by_name(store: StoreDatabase, wrong: JsonValue) -> None:
    with pytest.raises(Invalid, match=r"^inputs: cannot be kept as JSON.* 200 levels"):
        store.executions.create(new(inputs={"x": wrong}))

    assert unfinished(store) == []


def test_meta_over_64_kib_is_refused(store: StoreDatabase) -> None:
    """Each webhook call sends the meta; 1 MiB would make gigabytes with many tasks."""
    at_most = "x" * (64 * 1024 - 2)  # the quotes add two bytes
    store.executions.create(new(inputs={"x": at_most + "x"}, meta=at_most))
    with pytest.raises(Invalid, match=r"^meta: 65537 bytes, more than the 65536 that are kept"):
        store.executions.create(new(meta=at_most + "x"))


def test_value_over_its_limit_is_refused_by_name(store: StoreDatabase) -> None:
    with pytest.raises(Invalid, match=r"^error: 8388609 bytes, more than the 8388608"):
        record(store, create(store), error="x" * (MAX_VALUE + 1))
    with pytest.raises(Invalid, match=r"^result: holds half a character"):
        record(store, create(store), result="\ud800")


def test_execution_of_another_crew_or_owner_is_none(store: StoreDatabase) -> None:
    given = new(owner="an")
    store.executions.create(given)
    found = known(store, given.id)

    for crew, owner, seen in (
        (given.crew, "an", found),
        (given.crew, None, found),
        (given.crew, "binh", None),
        (given.crew, "", None),
        ("another-crew", "an", None),
    ):
        assert store.executions.read(given.id, crew=crew, owner=owner) == seen
