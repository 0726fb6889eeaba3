"""What is due is found among the first deliveries of each target, however the file got them."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path

import pytest
from pydantic import SecretBytes

from smartlinkd.store import outbox, schema
from smartlinkd.store.database import Store
from smartlinkd.store.model import NewDelivery, NewExecution, WebhookKind, WebhookTarget
from smartlinkd.store.schema import open_database
from smartlinkd.store.sealing import Seal
from tests.store.calls import CREW, SECOND, TASK, bodies, queue

pytestmark = pytest.mark.usefixtures("quick_disk")

Create = Callable[..., str]
KINDS: tuple[WebhookKind, ...] = ("task", "crew")


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
        kind = chance.choice(KINDS)
        queue(store, id_, NewDelivery(WebhookTarget(kind, url), b"{}", at))
        waiting.append(Waiting(number, (id_, url), at))
        for _ in range(chance.randrange(3)):
            if not waiting:
                break
            any_of_them = chance.choice(waiting)
            if chance.random() < 0.3:
                any_of_them.next_at = now + SECOND * chance.randrange(-3, 4)
                store.put_off(any_of_them.id, any_of_them.next_at)
            else:
                waiting.remove(any_of_them)
                store.done(any_of_them.id)
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
            now, limit, in_hand, [f"https://{host}.example" for host in busy]
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
        busy = ["https://a.example"]
        due = outbox.due(connection, seal, now, 10, except_ids=(), except_origins=busy)
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
        patch.setattr(outbox, "check_owed", lambda *_: None)
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
            earlier.done(1)

    store = open_store()

    assert bodies(store, now) == [b"at once"]
    found = store.due_deliveries(now + SECOND * 2, 10)
    assert [(each.body, each.due_since) for each in found] == [
        (b"at once", now),
        (b"first", now + SECOND * 2),
    ]


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
    store: Store, create: Create, path: Path, open_store: Callable[[], Store], now: datetime
) -> None:
    """An upgrade may be taken back, and tried again."""
    queue(store, create(), NewDelivery(TASK, b"1", now), NewDelivery(TASK, b"2", now))
    store.close()

    with closing(open_database(path)) as connection:
        for question in OF_THE_DAEMON_BEFORE:
            connection.execute(question).fetchall()

    again = open_store()
    assert bodies(again, now) == [b"new"]
    assert bodies(again, now + SECOND) == [b"new", b"2"]
    assert again.due_deliveries(now + SECOND, 10)[1].due_since == now
