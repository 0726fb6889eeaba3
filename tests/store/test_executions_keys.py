"""Idempotency keys: a key belongs to one body and one execution for a day."""

from __future__ import annotations

from datetime import timedelta

import pytest
from pydantic import JsonValue

from smartlinkd.errors import Unprocessable
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


def test_key_stands_for_one_body_and_lasts_for_a_day(store: StoreDatabase) -> None:
    executions = store.executions
    in_time, late = NOW + timedelta(hours=24, microseconds=-1), NOW + timedelta(hours=24)
    assert executions.created_by("deal-post", "", key(), NOW) is None
    first = executions.create(new(), key())

    assert executions.created_by("deal-post", "", key(), in_time) == first
    assert executions.create(new(created_at=in_time), key()) == first
    with pytest.raises(Unprocessable):
        executions.created_by("deal-post", "", key(body=None), in_time)
    assert executions.created_by("deal-post", "", key(), late) is None
    second = executions.create(new(created_at=late), key(body={}))
    assert executions.create(new(created_at=late), key(body={})) == second != first


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
