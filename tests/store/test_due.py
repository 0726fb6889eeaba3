"""The first delivery of each target is due, whatever was queued, rescheduled and made."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

import pytest

from smartlinkd.store.database import StoreDatabase
from smartlinkd.store.model import NewDelivery, WebhookKind, WebhookTarget
from tests.store.calls import SECOND, queue

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
    store: StoreDatabase, create: Create, now: datetime, seed: int
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
                store.reschedule(any_of_them.id, any_of_them.next_at)
            else:
                waiting.remove(any_of_them)
                store.remove_delivery(any_of_them.id)
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
