"""Webhook deliveries: queued, due, rescheduled and given up."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

import pytest

from smartlinkd.errors import Invalid
from smartlinkd.store.database import StoreDatabase
from smartlinkd.store.model import (
    Delivery,
    NewDelivery,
    Status,
    StoreLimits,
    WebhookKind,
    WebhookTarget,
)
from tests.store.calls import CREW, NOW, SECOND, STREAM, TASK, bodies, create, known, queue, record


@pytest.fixture
def execution_id(store: StoreDatabase) -> str:
    return create(store, webhooks=(TASK, STREAM))


def test_delivery_is_due_at_its_time(store: StoreDatabase, execution_id: str) -> None:
    queue(store, execution_id, NewDelivery(STREAM, b"{}", NOW + SECOND))

    assert store.outbox.due(NOW, 10) == []
    assert store.outbox.due(NOW + SECOND, 10) == [
        Delivery(1, execution_id, "deal-post", STREAM, b"{}", 0, NOW + SECOND, NOW + SECOND)
    ]


def test_origins_to_skip_are_skipped_whole(store: StoreDatabase, execution_id: str) -> None:
    kept = [
        "https://a.example.org/x",
        "https://a.example:8443/x",
        "http://a.example/x",
        "https://b.example/https://a.example/",
    ]
    passed_over = ["https://a.example", "https://a.example/x", "https://a.example?x"]
    for url in (*passed_over, *kept):
        call = NewDelivery(WebhookTarget("task", url), b"{}", NOW)
        queue(store, execution_id, call)

    busy = ["https://c.example", "https://a.example"]
    found = store.outbox.due(NOW, 10, except_origins=busy)
    assert [delivery.target.url for delivery in found] == kept


def test_question_to_a_human_does_not_wait_for_others(
    store: StoreDatabase, execution_id: str
) -> None:
    """The time for a human answer is limited."""
    asked = WebhookTarget("human_input", TASK.url)
    end = WebhookTarget("crew", TASK.url)
    calls = [(TASK, b"task"), (asked, b"a?"), (asked, b"b?"), (end, b"end")]
    queue(store, execution_id, *(NewDelivery(target, body, NOW) for target, body in calls))
    store.outbox.reschedule(1, NOW + SECOND)

    assert bodies(store) == [b"a?"]
    store.outbox.remove(1)
    assert bodies(store) == [b"a?", b"end"]


@pytest.mark.parametrize("store_limits", [StoreLimits(deliveries_page_bytes=10)])
def test_due_deliveries_are_limited_in_size(store: StoreDatabase, execution_id: str) -> None:
    queue(store, execution_id, NewDelivery(TASK, b"x" * 20, NOW), NewDelivery(CREW, b"y", NOW))

    assert bodies(store) == [b"x" * 20]


@pytest.mark.parametrize("store_limits", [StoreLimits(deliveries=2)])
def test_deliveries_of_the_end_are_queued_past_the_limit(
    store: StoreDatabase, execution_id: str
) -> None:
    queue(store, execution_id, NewDelivery(TASK, b"1", NOW), NewDelivery(CREW, b"2", NOW))
    for each in store.outbox.due(NOW, 10):
        store.outbox.remove(each.id)  # the limit counts all deliveries, not the waiting ones

    with pytest.raises(Invalid, match="webhook calls: more than 2"):
        queue(store, execution_id, NewDelivery(TASK, b"3", NOW))
    last = [NewDelivery(CREW, b"end", NOW)]
    record(store, execution_id, deliveries=last, status=Status.ERROR, finished_at=NOW)
    assert bodies(store) == [b"end"]


@pytest.mark.parametrize("store_limits", [StoreLimits(pending_bytes=10)])
def test_pending_bytes_are_limited_except_for_the_end(
    store: StoreDatabase, execution_id: str
) -> None:
    queue(store, create(store), NewDelivery(TASK, b"another's", NOW))
    queue(store, execution_id, NewDelivery(TASK, b"12345", NOW), NewDelivery(STREAM, b"6789", NOW))

    refusal = r"^webhook calls: more than 10 bytes owed at a time in one execution; see to the rece"
    with pytest.raises(Invalid, match=refusal):
        queue(store, execution_id, NewDelivery(CREW, b"ab", NOW))
    queue(store, execution_id)  # an update without deliveries
    last = [NewDelivery(CREW, b"the end", NOW)]
    record(store, execution_id, deliveries=last, status=Status.ERROR, finished_at=NOW)


@pytest.mark.parametrize("store_limits", [StoreLimits(pending_bytes=10)])
def test_removed_delivery_frees_pending_bytes(
    store: StoreDatabase,
    execution_id: str,
    open_store: Callable[[], StoreDatabase],
) -> None:
    """In any order, and before a restart, too."""
    queue(store, execution_id, NewDelivery(TASK, b"12345", NOW), NewDelivery(CREW, b"6789", NOW))
    store.outbox.remove(1)
    store.outbox.remove(1)
    queue(store, execution_id, NewDelivery(STREAM, b"123456", NOW))
    store.outbox.reschedule(2, NOW + SECOND)
    store.close()

    again = open_store()
    with pytest.raises(Invalid, match="webhook calls"):
        queue(again, execution_id, NewDelivery(TASK, b"x", NOW))
    again.outbox.remove(2)
    again.outbox.remove(3)
    queue(again, execution_id, NewDelivery(TASK, b"1234567890", NOW))


def test_rescheduled_delivery_keeps_its_first_due_time(
    store: StoreDatabase, execution_id: str
) -> None:
    queue(store, execution_id, NewDelivery(TASK, b"1", NOW))
    for failed in range(1, 3):
        store.outbox.reschedule(1, NOW + SECOND * failed)

    assert store.outbox.due(NOW + SECOND, 10) == []
    (again,) = store.outbox.due(NOW + SECOND * 2, 10)
    assert (again.due_since, again.next_at) == (NOW, NOW + SECOND * 2)
    assert (again.id, again.attempts) == (1, 2)


def test_deliveries_keep_their_targets_and_the_execution_its_own(
    store: StoreDatabase, execution_id: str
) -> None:
    other = WebhookTarget("crew", "https://b.example/crew")
    queue(store, execution_id, NewDelivery(TASK, b"1", NOW), NewDelivery(other, b"2", NOW))
    assert known(store, execution_id).webhooks == (TASK, STREAM)

    record(store, execution_id, webhooks=(CREW,))

    assert known(store, execution_id).webhooks == (CREW,)
    assert [each.target for each in store.outbox.due(NOW, 10)] == [TASK, other]


@pytest.mark.parametrize("store_limits", [StoreLimits(targets=4)])
def test_replaced_targets_are_deleted(store: StoreDatabase, execution_id: str) -> None:

    for number in range(10):
        targets = tuple(WebhookTarget("task", f"https://{number}.example/{n}") for n in range(2))
        record(store, execution_id, webhooks=targets)

    record(store, execution_id, webhooks=())
    record(store, execution_id, webhooks=targets * 2)
    with pytest.raises(Invalid, match=r"^webhooks: more than 4"):
        record(store, execution_id, webhooks=targets[:1])


KINDS: tuple[WebhookKind, ...] = ("task", "crew")


@dataclass
class Waiting:
    """A delivery in the test's own model."""

    id: int
    target: tuple[str, str]
    next_at: datetime


@pytest.mark.parametrize("seed", range(4))
def test_due_deliveries_equal_those_of_a_full_scan(store: StoreDatabase, seed: int) -> None:
    """The first delivery of each target is due, longest due first, after any history of changes."""
    chance = random.Random(seed)
    executions = [create(store) for _ in range(4)]
    urls = [f"https://{host}.example/{path}" for host in "abc" for path in "xy"]
    waiting: list[Waiting] = []
    for number in range(1, 121):
        at = NOW + SECOND * chance.randrange(-3, 4)
        id_, url = chance.choice(executions), chance.choice(urls)
        kind = chance.choice(KINDS)
        queue(store, id_, NewDelivery(WebhookTarget(kind, url), b"{}", at))
        waiting.append(Waiting(number, (id_, url), at))
        for _ in range(chance.randrange(3)):
            if not waiting:
                break
            any_of_them = chance.choice(waiting)
            if chance.random() < 0.3:
                any_of_them.next_at = NOW + SECOND * chance.randrange(-3, 4)
                store.outbox.reschedule(any_of_them.id, any_of_them.next_at)
            else:
                waiting.remove(any_of_them)
                store.outbox.remove(any_of_them.id)
        in_hand = {each.id for each in chance.sample(waiting, min(2, len(waiting)))}
        busy = chance.sample("abc", chance.randrange(3))
        limit = chance.randrange(1, 8)
        ready = [
            each
            for each in first_of_each_target(waiting)
            if each.next_at <= NOW
            and each.id not in in_hand
            and each.target[1].removeprefix("https://")[0] not in busy
        ]
        ready.sort(key=lambda each: (each.next_at, each.id))

        found = store.outbox.due(
            NOW,
            limit,
            except_ids=in_hand,
            except_origins=[f"https://{host}.example" for host in busy],
        )

        assert [each.id for each in found] == [each.id for each in ready[:limit]]


def first_of_each_target(waiting: list[Waiting]) -> list[Waiting]:
    """Return the first delivery of each target, ordered by number."""
    first: dict[tuple[str, str], Waiting] = {}
    for each in waiting:
        first.setdefault(each.target, each)
    return list(first.values())
