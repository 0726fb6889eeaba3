"""Webhook deliveries: queued with what they tell of, kept until they are done."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from pydantic import SecretBytes

from daemon.journal import deliveries, schema
from daemon.journal.actor import Journal
from daemon.journal.errors import AlreadyFinished, TooLarge
from daemon.journal.model import Change, Delivery, NewDelivery, NewExecution, Status, WebhookTarget
from daemon.journal.schema import open_database
from daemon.journal.sealing import Seal
from daemon.journal.store import Store

pytestmark = pytest.mark.usefixtures("quick_disk")

Create = Callable[..., str]

TASK = WebhookTarget("task", "https://a.example/task")
CREW = WebhookTarget("crew", "https://a.example/crew")
STREAM = WebhookTarget("stream", "https://a.example/stream", events=("x",))
SECOND = timedelta(seconds=1)


@pytest.fixture
def execution_id(create: Create) -> str:
    return create(webhooks=(TASK, STREAM))


def queue(store: Store, execution_id: str, *calls: NewDelivery) -> None:
    store.record(execution_id, Change(), (), calls)


def bodies(store: Store, now: datetime, limit: int = 10) -> list[bytes]:
    return [delivery.body for delivery in store.due_deliveries(now, limit)]


def test_a_queued_delivery_is_due_at_its_time(
    store: Store, execution_id: str, now: datetime
) -> None:
    queue(store, execution_id, NewDelivery(STREAM, b"{}", now + SECOND))

    assert store.due_deliveries(now, 10) == []
    assert store.due_deliveries(now + SECOND, 10) == [
        Delivery(1, execution_id, "deal-post", STREAM, b"{}", 0, now + SECOND, None)
    ]


def test_what_the_asker_has_in_hand_is_passed_over_with_all_behind_it(
    store: Store, execution_id: str, now: datetime
) -> None:
    queue(
        store,
        execution_id,
        NewDelivery(TASK, b"in hand", now),
        NewDelivery(TASK, b"behind it", now),
        NewDelivery(STREAM, b"free", now),
    )

    found = store.due_deliveries(now, 10, but=[1])
    assert [delivery.body for delivery in found] == [b"free"]


def test_origins_are_passed_over_whole(store: Store, execution_id: str, now: datetime) -> None:
    kept = [
        "https://a.example.org/x",
        "https://a.example:8443/x",
        "http://a.example/x",
        "https://b.example/https://a.example/",
    ]
    passed_over = ["https://a.example", "https://a.example/x", "https://a.example?x"]
    for url in (*passed_over, *kept):
        call = NewDelivery(WebhookTarget("task", url), b"{}", now)
        queue(store, execution_id, call)

    found = store.due_deliveries(now, 10, besides=["https://c.example", "https://a.example"])
    assert [delivery.target.url for delivery in found] == kept


def test_the_longest_due_come_first(store: Store, execution_id: str, now: datetime) -> None:
    queue(
        store,
        execution_id,
        NewDelivery(TASK, b"second", now),
        NewDelivery(CREW, b"third", now),
        NewDelivery(STREAM, b"first", now - SECOND),
    )

    assert bodies(store, now) == [b"first", b"second", b"third"]
    assert bodies(store, now, limit=2) == [b"first", b"second"]


def test_one_waits_for_those_before_it_to_the_same_target(
    store: Store, create: Create, execution_id: str, now: datetime
) -> None:
    other = create(webhooks=(TASK,))
    queue(store, execution_id, NewDelivery(TASK, b"1", now), NewDelivery(TASK, b"2", now - SECOND))
    queue(store, other, NewDelivery(TASK, b"another execution's", now))

    assert bodies(store, now) == [b"1", b"another execution's"]
    store.delivery_failed(store.due_deliveries(now, 1)[0].id, now + SECOND, "answered 500")
    assert bodies(store, now) == [b"another execution's"]
    assert bodies(store, now + SECOND) == [b"another execution's", b"1"]
    store.delivered(store.due_deliveries(now + SECOND, 10)[1].id)
    assert bodies(store, now) == [b"2", b"another execution's"]


@dataclass
class Waiting:
    """A delivery, as a test remembers it."""

    id: int
    target: tuple[str, str]
    next_at: datetime


@pytest.mark.parametrize("seed", range(4))
def test_what_is_due_is_what_a_look_at_all_finds(
    store: Store, create: Create, now: datetime, seed: int
) -> None:
    """Whatever is queued, put off and done: the first of each target, longest due first."""
    chance = random.Random(seed)
    executions = [create() for _ in range(4)]
    urls = [f"https://{host}.example/{path}" for host in "abc" for path in "xy"]
    waiting: list[Waiting] = []
    for number in range(1, 121):
        at = now + SECOND * chance.randrange(-3, 4)
        id_, url = chance.choice(executions), chance.choice(urls)
        queue(store, id_, NewDelivery(WebhookTarget("task", url), b"{}", at))
        waiting.append(Waiting(number, (id_, url), at))
        for _ in range(chance.randrange(3)):
            if not waiting:
                break
            any_of_them = chance.choice(waiting)
            if chance.random() < 0.3:
                any_of_them.next_at = now + SECOND * chance.randrange(-3, 4)
                store.delivery_failed(any_of_them.id, any_of_them.next_at, "answered 500")
            else:
                waiting.remove(any_of_them)
                store.delivered(any_of_them.id)
        in_hand = {each.id for each in chance.sample(waiting, min(2, len(waiting)))}
        busy = chance.sample("abc", chance.randrange(3))
        limit = chance.randrange(1, 8)
        ready = [
            each
            for each in firsts(waiting)
            if each.next_at <= now
            and each.id not in in_hand
            and each.target[1].removeprefix("https://")[0] not in busy
        ]
        ready.sort(key=lambda each: (each.next_at, each.id))

        found = store.due_deliveries(
            now, limit, but=in_hand, besides=[f"https://{host}.example" for host in busy]
        )

        assert [each.id for each in found] == [each.id for each in ready[:limit]]


def firsts(waiting: list[Waiting]) -> list[Waiting]:
    """In the order of their numbers."""
    first: dict[tuple[str, str], Waiting] = {}
    for each in waiting:
        first.setdefault(each.target, each)
    return list(first.values())


def test_what_waits_behind_another_is_not_looked_at(
    create: Create, store: Store, path: Path, now: datetime
) -> None:
    """Each call that is made is followed by a look, and all else in the journal waits for that."""
    executions = [create() for _ in range(10)]
    took = list[int]()
    for calls in (1, 50):
        for id_ in executions:
            queue(store, id_, *[NewDelivery(TASK, b"", now)] * calls)
        took.append(steps_of_a_look(path, now, found=[]))

    assert took[0] == took[1]


def test_what_waits_for_a_busy_host_is_passed_over_in_its_index(
    create: Create, store: Store, path: Path, now: datetime
) -> None:
    took = list[int]()
    for executions in (10, 200):
        for _ in range(executions):
            queue(store, create(), NewDelivery(TASK, b"", now))
        took.append(steps_of_a_look(path, now, found=[]))

    assert took[1] - took[0] <= 200 * 6


def test_no_more_is_looked_at_than_is_wanted(
    create: Create, store: Store, path: Path, now: datetime
) -> None:
    took = list[int]()
    for hosts in (20, 200):
        for host in range(hosts):
            target = WebhookTarget("task", f"https://{host}.example/")
            queue(store, create(), NewDelivery(target, b"%d" % host, now + SECOND * (hosts - 20)))
        first = [b"%d" % host for host in range(10)]
        took.append(steps_of_a_look(path, now + SECOND * 200, found=first))

    assert took[0] == took[1]


def steps_of_a_look(path: Path, now: datetime, *, found: list[bytes]) -> int:
    """How many SQLite makes to find these, and no more than ten, while one host is busy."""
    seal = Seal(SecretBytes(b"k" * 32), "webhook credentials")
    steps = list[None]()
    note = partial(steps.append, None)
    with closing(open_database(path)) as connection:
        connection.set_progress_handler(note, 1)
        due = deliveries.due(connection, seal, now, 10, besides=["https://a.example"])
    assert [each.body for each in due] == found
    return len(steps)


def test_what_waited_before_the_addition_is_found(
    path: Path,
    open_store: Callable[[], Store],
    new: Callable[..., NewExecution],
    now: datetime,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(schema, "ADDITIONS", {})
        with closing(open_store()) as earlier:
            execution_id = earlier.create(new(), None).id
            calls = [
                NewDelivery(target, body, now + SECOND * seconds)
                for target, body, seconds in [
                    (TASK, b"done", 0),
                    (TASK, b"first", 2),
                    (TASK, b"behind it", 0),
                    (CREW, b"at once", 0),
                ]
            ]
            queue(earlier, execution_id, *calls)
            earlier.delivered(1)

    store = open_store()

    assert bodies(store, now) == [b"at once"]
    assert bodies(store, now + SECOND * 2) == [b"at once", b"first"]


OF_THE_DAEMON_BEFORE = (
    """
    SELECT deliveries.number AS delivery, id, crew, attempts, next_at, last_error, body,
           kind, url, webhooks.events, credential
    FROM deliveries
    JOIN webhooks ON webhooks.number = deliveries.webhook
    JOIN executions ON executions.sequence = deliveries.execution
    WHERE next_at <= 9e18
    AND NOT EXISTS (SELECT 1 FROM deliveries AS before
                    WHERE before.webhook = deliveries.webhook
                    AND before.number < deliveries.number)
    ORDER BY next_at, deliveries.number
    """,
    "DELETE FROM deliveries WHERE number = 1 RETURNING execution",
    "UPDATE deliveries SET next_at = next_at + 1000000 WHERE number = 2",
    "INSERT INTO webhooks (execution, in_force, kind, url, events) "
    "VALUES (1, 0, 'crew', 'https://a.example/crew', '[]')",
    "INSERT INTO deliveries (execution, webhook, next_at, body) "
    "SELECT 1, webhooks.number, next_at - 1000000, CAST('new' AS BLOB) "
    "FROM webhooks, deliveries WHERE kind = 'crew'",
)
"""What it asks and does, with `next_at` for the one column of that name that it knows."""


def test_the_daemon_before_gets_on_with_the_file(
    store: Store, execution_id: str, path: Path, open_store: Callable[[], Store], now: datetime
) -> None:
    """An upgrade may be taken back, and tried again."""
    queue(store, execution_id, NewDelivery(TASK, b"1", now), NewDelivery(TASK, b"2", now))
    store.close()

    with closing(open_database(path)) as connection:
        for question in OF_THE_DAEMON_BEFORE:
            connection.execute(question).fetchall()

    again = open_store()
    assert bodies(again, now) == [b"new"]
    assert bodies(again, now + SECOND) == [b"new", b"2"]


def test_large_ones_come_a_few_at_a_time(
    store: Store, execution_id: str, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "MAX_BYTES_AT_ONCE", 10)
    queue(store, execution_id, NewDelivery(TASK, b"x" * 20, now), NewDelivery(CREW, b"y", now))

    assert bodies(store, now) == [b"x" * 20]


def test_what_is_delivered_is_gone(store: Store, execution_id: str, now: datetime) -> None:
    queue(store, execution_id, NewDelivery(TASK, b"1", now), NewDelivery(TASK, b"2", now))
    (first,) = store.due_deliveries(now, 10)

    store.delivered(first.id)
    store.delivered(first.id)

    assert bodies(store, now) == [b"2"]


def test_the_number_of_one_that_is_gone_does_not_come_back(
    store: Store, execution_id: str, now: datetime
) -> None:
    queue(store, execution_id, NewDelivery(TASK, b"1", now))
    (first,) = store.due_deliveries(now, 10)
    store.delivered(first.id)
    queue(store, execution_id, NewDelivery(TASK, b"2", now))

    store.delivered(first.id)

    assert bodies(store, now) == [b"2"]


def test_what_failed_is_due_later_and_says_why(
    store: Store, execution_id: str, now: datetime
) -> None:
    queue(store, execution_id, NewDelivery(TASK, b"1", now))
    (first,) = store.due_deliveries(now, 10)

    store.delivery_failed(first.id, now + SECOND, "answered 500")

    assert store.due_deliveries(now, 10) == []
    (again,) = store.due_deliveries(now + SECOND, 10)
    assert (again.id, again.attempts, again.last_error) == (first.id, 1, "answered 500")


async def test_what_is_given_up_is_gone_and_logged(
    journal: Journal,
    new: Callable[..., NewExecution],
    now: datetime,
    caplog: pytest.LogCaptureFixture,
) -> None:
    id_ = (await journal.create(new(), idempotency=None)).id
    change = Change(total_tasks=1)
    await journal.record(id_, change, deliveries=[NewDelivery(TASK, b"1", now)])
    (due,) = await journal.due_deliveries(now, 1)

    await journal.delivery_failed(due.id, None, "answered 410")

    assert await journal.due_deliveries(now + timedelta(days=9), 1) == []
    assert "gave up webhook delivery 1: answered 410" in caplog.text


def test_nothing_is_queued_when_its_news_is_not_recorded(
    store: Store, execution_id: str, now: datetime, finish: Callable[..., None]
) -> None:
    finish(execution_id)

    with pytest.raises(AlreadyFinished):
        queue(store, execution_id, NewDelivery(TASK, b"late", now))

    assert bodies(store, now) == []


def test_new_targets_replace_the_old_but_not_for_what_waits(
    store: Store, execution_id: str, now: datetime
) -> None:
    queue(store, execution_id, NewDelivery(TASK, b"waits", now))
    other = WebhookTarget("task", "https://b.example/task")

    store.record(execution_id, Change(webhooks=(other,)), (), ())

    changed = store.execution(execution_id)
    assert changed is not None
    assert changed.webhooks == (other,)
    (waiting,) = store.due_deliveries(now, 10)
    assert waiting.target == TASK


def test_a_target_of_its_own_is_no_target_of_the_execution(
    store: Store, execution_id: str, now: datetime
) -> None:
    other = WebhookTarget("crew", "https://b.example/crew")
    queue(store, execution_id, NewDelivery(other, b"1", now))

    (waiting,) = store.due_deliveries(now, 10)
    assert waiting.target == other
    execution = store.execution(execution_id)
    assert execution is not None
    assert execution.webhooks == (TASK, STREAM)


def test_replacing_targets_for_ever_fills_nothing(
    store: Store, execution_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "MAX_TARGETS", 4)

    for number in range(10):
        targets = tuple(WebhookTarget("task", f"https://{number}.example/{n}") for n in range(2))
        store.record(execution_id, Change(webhooks=targets), (), ())

    with pytest.raises(TooLarge, match=r"^webhooks: more than 4"):
        store.record(execution_id, Change(webhooks=targets * 2), (), ())


def test_a_body_over_the_limit_is_refused(
    store: Store, execution_id: str, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "MAX_BODY", 3)

    with pytest.raises(TooLarge, match=r"^webhook body: 4 bytes"):
        queue(store, execution_id, NewDelivery(TASK, b"1234", now))


def test_the_last_news_of_an_execution_is_queued_with_its_end(
    store: Store, execution_id: str, now: datetime
) -> None:
    end = Change(status=Status.ERROR, finished_at=now)
    store.record(execution_id, end, (), [NewDelivery(TASK, b"end", now)])

    assert bodies(store, now) == [b"end"]
