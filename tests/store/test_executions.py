"""Executions: what is written is what is read, and what ends stays as it ended."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from pydantic import JsonValue

from smartlinkd.errors import Invalid
from smartlinkd.store.database import StoreDatabase
from smartlinkd.store.errors import AlreadyFinished, TooLarge
from smartlinkd.store.executions import EVENT_PART_BYTES
from smartlinkd.store.model import (
    Change,
    Execution,
    ExecutionEvent,
    ExecutionState,
    ExecutionUpdate,
    NewEvent,
    NewExecution,
    Status,
    StoreLimits,
    TaskRecord,
    WebhookTarget,
)

Create = Callable[..., str]
New = Callable[..., NewExecution]


def known(store: StoreDatabase, execution_id: str) -> Execution:
    execution = store.execution(execution_id)
    assert execution is not None
    return execution


def test_created_execution_is_read_as_it_was_given(
    store: StoreDatabase, new: New, now: datetime
) -> None:
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
    created = store.create(given, None)

    assert (created.id, created.is_new) == (given.id, True)
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
        created_at=now,
        started_at=None,
        finished_at=None,
        sequence=1,
    )


def test_change_is_kept_and_leaves_the_rest(
    store: StoreDatabase, create: Create, now: datetime
) -> None:
    execution_id = create()
    later = now + timedelta(seconds=2)
    store.record(execution_id, ExecutionUpdate(Change(status=Status.RUNNING, started_at=later)))
    store.record(
        execution_id,
        ExecutionUpdate(
            Change(
                status=Status.WAITING_FOR_HUMAN_INPUT,
                current_task="t2",
                total_tasks=3,
                last_step={"thought": "hm"},
                result="half",
                result_json=[1],
                error="none yet",
            )
        ),
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


def test_change_to_none_clears_the_field(
    store: StoreDatabase, create: Create, now: datetime
) -> None:
    execution_id = create()
    started = Change(current_task="t1", last_step="s", started_at=now, error="e", total_tasks=2)
    store.record(execution_id, ExecutionUpdate(started))
    cleared = Change(
        current_task=None, last_step=None, started_at=None, error=None, total_tasks=None
    )

    store.record(execution_id, ExecutionUpdate(cleared))
    execution = known(store, execution_id)

    assert (execution.current_task, execution.last_step, execution.started_at) == (None,) * 3
    assert (execution.error, execution.total_tasks) == (None, None)


def test_tasks_are_added_in_their_order(store: StoreDatabase, create: Create) -> None:
    execution_id = create()
    first = TaskRecord("t1", "scout", "Scout", "find", "links", "found", {"n": 1}, 1.5)
    store.record(execution_id, ExecutionUpdate(Change(new_tasks=[first])))
    store.record(
        execution_id, ExecutionUpdate(Change(new_tasks=[TaskRecord("t2"), TaskRecord("t3")]))
    )

    execution = known(store, execution_id)

    assert execution.tasks == (first, TaskRecord("t2"), TaskRecord("t3"))
    assert execution.completed_tasks == 3


def test_execution_that_runs_again_has_only_its_new_tasks(
    store: StoreDatabase, create: Create
) -> None:
    execution_id = create()
    store.record(
        execution_id, ExecutionUpdate(Change(new_tasks=[TaskRecord("t1"), TaskRecord("t2")]))
    )

    again = Change(status=Status.PENDING, drop_tasks=True, new_tasks=[TaskRecord("t1", "anew")])
    store.record(execution_id, ExecutionUpdate(again))
    execution = known(store, execution_id)

    assert execution.tasks == (TaskRecord("t1", "anew"),)
    assert execution.completed_tasks == 1


@pytest.mark.parametrize("store_limits", [StoreLimits(tasks=2)])
def test_tasks_beyond_the_limit_are_refused(store: StoreDatabase, create: Create) -> None:
    execution_id = create()
    store.record(
        execution_id, ExecutionUpdate(Change(new_tasks=[TaskRecord("t1"), TaskRecord("t2")]))
    )

    with pytest.raises(TooLarge, match="completed tasks: more than 2"):
        store.record(execution_id, ExecutionUpdate(Change(new_tasks=[TaskRecord("t3")])))


def test_events_are_numbered_from_one_without_gaps(
    store: StoreDatabase, create: Create, now: datetime
) -> None:
    execution_id, other = create(), create()
    store.record(
        execution_id, ExecutionUpdate(Change(), [NewEvent("a", now, {"x": 1}), NewEvent("b", now)])
    )
    store.record(other, ExecutionUpdate(Change(), [NewEvent("z", now)]))
    store.record(execution_id, ExecutionUpdate(Change(), [NewEvent("c", now)]))

    assert store.events(execution_id, 0, 10) == [
        ExecutionEvent(1, now, "a", b'{"x":1}', size=7),
        ExecutionEvent(2, now, "b", b"", size=0),
        ExecutionEvent(3, now, "c", b"", size=0),
    ]
    assert [event.data for event in store.events(execution_id, 0, 2)] == [{"x": 1}, None]
    assert [event.type for event in store.events(execution_id, 1, 1)] == ["b"]
    assert store.events(execution_id, 3, 10) == []
    assert store.events("unknown", 0, 10) == []


def test_events_larger_than_an_answer_come_in_several(
    store: StoreDatabase, create: Create, now: datetime
) -> None:
    execution_id = create()
    two_fit = "x" * (EVENT_PART_BYTES * 2 // 5)
    store.record(execution_id, ExecutionUpdate(Change(), [NewEvent("a", now, two_fit)] * 3))

    assert [event.number for event in store.events(execution_id, 0, 10)] == [1, 2]
    assert [event.number for event in store.events(execution_id, 2, 10)] == [3]


def test_large_event_comes_alone(store: StoreDatabase, create: Create, now: datetime) -> None:
    execution_id = create()
    large = NewEvent("large", now, "x" * 2 * EVENT_PART_BYTES)
    store.record(execution_id, ExecutionUpdate(Change(), [NewEvent("small", now), large]))

    assert [event.type for event in store.events(execution_id, 0, 10)] == ["small"]


@pytest.mark.parametrize("character", ["x", "ố", "\u2028", "😀"])
@pytest.mark.parametrize("ahead", range(4))
def test_large_event_comes_in_parts_of_whole_characters(
    store: StoreDatabase, create: Create, now: datetime, character: str, ahead: int
) -> None:
    execution_id = create()
    text = "x" * ahead + character * EVENT_PART_BYTES  # ends in each byte of a character
    store.record(
        execution_id, ExecutionUpdate(Change(), [NewEvent("a", now, text), NewEvent("b", now)])
    )

    parts = store.events(execution_id, 0, 10)
    while not parts[-1].is_last_part:
        parts += store.events(execution_id, 0, 10, parts[-1].end)

    assert {part.number for part in parts} == {1}
    assert json.loads("".join(part.json.decode() for part in parts)) == text
    assert max(len(part.json) for part in parts) <= EVENT_PART_BYTES
    assert len(parts) >= 2


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_event_about_as_large_as_an_answer_is_whole_or_has_another_part(
    store: StoreDatabase, create: Create, now: datetime, more: int
) -> None:
    execution_id = create()
    text = "x" * (EVENT_PART_BYTES - len('""') + more)
    store.record(execution_id, ExecutionUpdate(Change(), [NewEvent("a", now, text)]))

    (first,) = store.events(execution_id, 0, 10)

    assert first.is_last_part is (more <= 0)
    assert first.size == EVENT_PART_BYTES + more


def test_events_without_data_are_counted_by_type(
    store: StoreDatabase, create: Create, now: datetime
) -> None:
    execution_id, other = create(), create()
    bare, telling = NewEvent("a", now), NewEvent("a", now, {"x": 1})
    store.record(execution_id, ExecutionUpdate(Change(), [bare, telling, NewEvent("b", now), bare]))
    store.record(other, ExecutionUpdate(Change(), [bare]))

    assert store.count_bare_events(execution_id, "a") == 2
    assert store.count_bare_events("nobody", "a") == 0


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
    store: StoreDatabase, create: Create, now: datetime, status: Status, state: ExecutionState
) -> None:
    execution_id = create()
    store.record(execution_id, ExecutionUpdate(Change(status=status, finished_at=now)))
    ended = known(store, execution_id)
    assert ended.state is state

    with pytest.raises(AlreadyFinished, match=execution_id):
        store.record(
            execution_id,
            ExecutionUpdate(
                Change(status=Status.RUNNING, finished_at=None, result="late"),
                [NewEvent("late", now)],
            ),
        )

    assert store.execution(execution_id) == ended
    assert store.events(execution_id, 0, 10) == []


def test_end_without_its_time_is_refused(store: StoreDatabase, create: Create) -> None:
    execution_id = create()

    with pytest.raises(sqlite3.IntegrityError):
        store.record(execution_id, ExecutionUpdate(Change(status=Status.ERROR)))

    assert known(store, execution_id).status is Status.PENDING


def test_unfinished_executions_are_in_order_of_creation(
    store: StoreDatabase, create: Create, finish: Callable[..., None]
) -> None:
    ids = [create() for _ in range(4)]
    store.record(ids[2], ExecutionUpdate(Change(status=Status.RUNNING)))
    finish(ids[1])

    assert [execution.id for execution in store.unfinished()] == [ids[0], ids[2], ids[3]]


@pytest.mark.parametrize("store_limits", [StoreLimits(tasks_chars=1000)])
def test_refused_record_changes_nothing(
    store: StoreDatabase, create: Create, now: datetime
) -> None:
    execution_id = create()
    before = known(store, execution_id)

    with pytest.raises(TooLarge, match=r"^tasks: \d+ bytes, more than the 1000"):
        store.record(
            execution_id,
            ExecutionUpdate(
                Change(new_tasks=[TaskRecord("small"), TaskRecord("t", output="x" * 1000)]),
                [NewEvent("a", now)],
            ),
        )

    assert store.execution(execution_id) == before
    assert store.events(execution_id, 0, 10) == []


@pytest.mark.parametrize("store_limits", [StoreLimits(events=2)])
def test_end_is_recorded_past_the_limit_of_events(
    store: StoreDatabase, create: Create, now: datetime
) -> None:
    execution_id = create()
    store.record(execution_id, ExecutionUpdate(Change(), [NewEvent("a", now)] * 2))

    with pytest.raises(TooLarge, match="events: more than 2"):
        store.record(execution_id, ExecutionUpdate(Change(), [NewEvent("b", now)]))
    end = Change(status=Status.ERROR, finished_at=now)
    with pytest.raises(TooLarge, match="events: more than 2"):  # what came with its last words
        store.record(execution_id, ExecutionUpdate(end, [NewEvent("b", now), NewEvent("end", now)]))
    store.record(execution_id, ExecutionUpdate(end, [NewEvent("end", now)]))
    assert [event.type for event in store.events(execution_id, 0, 10)] == ["a", "a", "end"]


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), "\ud800", {"\udfff": 1}])
def test_value_that_is_no_json_is_refused_by_name(
    store: StoreDatabase, new: New, wrong: JsonValue
) -> None:
    given = new(inputs={"x": wrong})

    with pytest.raises(Invalid, match=r"^inputs: cannot be kept as JSON"):
        store.create(given, None)

    assert store.executions("deal-post", None, None, 10, None).executions == ()


def test_meta_over_64_kib_is_refused(store: StoreDatabase, new: New) -> None:
    """Each webhook call has the meta: with 1 MiB, many tasks would make gigabytes."""
    at_most = "x" * (64 * 1024 - 2)  # and its quotes
    store.create(new(inputs={"x": at_most + "x"}, meta=at_most), None)
    with pytest.raises(TooLarge, match=r"^meta: 65537 bytes, more than the 65536 that are kept"):
        store.create(new(meta=at_most + "x"), None)


def test_value_too_deep_to_be_read_is_refused(store: StoreDatabase, new: New) -> None:
    deep: JsonValue = "x"
    for _ in range(250):
        deep = [deep]

    with pytest.raises(Invalid, match=r"^meta: .*200 levels"):
        store.create(new(meta=deep), None)


def test_value_over_its_limit_is_refused_by_name(store: StoreDatabase, create: Create) -> None:
    with pytest.raises(TooLarge, match=r"^error: 70000 bytes, more than the 65536"):
        store.record(create(), ExecutionUpdate(Change(error="x" * 70_000)))
    with pytest.raises(Invalid, match=r"^result: holds half a character"):
        store.record(create(), ExecutionUpdate(Change(result="\ud800")))


def test_execution_of_another_crew_or_owner_is_none(store: StoreDatabase, new: New) -> None:
    given = new(owner="an")
    store.create(given, None)

    assert store.execution(given.id, given.crew, "an") == known(store, given.id)
    assert store.execution(given.id, given.crew, None) == known(store, given.id)
    assert store.execution(given.id, given.crew, "binh") is None
    assert store.execution(given.id, given.crew, "") is None
    assert store.execution(given.id, "another-crew", "an") is None
