"""Idempotency keys: a key belongs to one body and one execution for a day."""

from __future__ import annotations

from datetime import timedelta

import pytest
from pydantic import JsonValue

from smartlinkd.errors import Unprocessable
from smartlinkd.store.actor import Store
from smartlinkd.store.codec import digest
from smartlinkd.store.database import StoreDatabase
from smartlinkd.store.model import (
    Change,
    ExecutionUpdate,
    IdempotencyKey,
    Status,
)
from tests.store.calls import NOW, new

BODY: JsonValue = {"inputs": {"a": 1, "b": [2.0, None]}}


def key(name: str = "k", body: JsonValue = BODY) -> IdempotencyKey:
    return IdempotencyKey(name, body)


def test_repeated_kickoff_leaves_the_first_execution_as_it_is(store: StoreDatabase) -> None:
    begun = ExecutionUpdate(Change(status=Status.RUNNING, started_at=NOW))
    first = store.executions.create(new(), key(), begun)
    other = ExecutionUpdate(Change(status=Status.PENDING))

    assert store.executions.create(new(), key(), other) == first

    assert [execution.status for execution in store.executions.unfinished()] == [Status.RUNNING]


def test_key_lasts_for_a_day(store: StoreDatabase) -> None:
    first = new()
    store.executions.create(first, key())
    in_time = first.created_at + timedelta(hours=24) - timedelta(microseconds=1)
    late = first.created_at + timedelta(hours=24)

    assert store.executions.create(new(created_at=in_time), key()) == first.id
    second = store.executions.create(new(created_at=late), key(body={}))
    assert second != first.id
    assert store.executions.create(new(created_at=late), key(body={})) == second


async def test_created_by_returns_the_execution_of_a_key(journal: Store) -> None:
    first = new()
    assert await journal.created_by("deal-post", "", key(), NOW) is None
    await journal.create(first, idempotency=key())

    assert await journal.created_by("deal-post", "", key(), NOW) == first.id
    with pytest.raises(Unprocessable):
        await journal.created_by("deal-post", "", key(body=None), NOW)
    assert await journal.created_by("deal-post", "", key(), NOW + timedelta(hours=25)) is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ([1, 0, 10**22], [1.0, -0.0, 1e22]),
        ({"x": {"y": "é"}}, {"x": {"y": "\u00e9"}}),
    ],
)
def test_equal_values_have_equal_digests(one: JsonValue, other: JsonValue) -> None:
    assert digest(one) == digest(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([1, 2], [2, 1]),
        ({"a": None}, {}),
        (1, True),
        (1, "1"),
        (0.1, 0.2),
        (2**53, 2**53 + 1),
        (None, "null"),
        ("é", "e\u0301"),
    ],
)
def test_other_values_have_other_digests(one: JsonValue, other: JsonValue) -> None:
    assert digest(one) != digest(other)
