"""What is answered from memory is what the disk has, and goes to whom it belongs."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
import trio
from pydantic import JsonValue, SecretStr

from smartlinkd.store import codec, executions, outbox
from smartlinkd.store import recent as recent_module
from smartlinkd.store.actor import Journal
from smartlinkd.store.database import Store
from smartlinkd.store.model import (
    Change,
    Entry,
    Execution,
    NewDelivery,
    NewExecution,
    Status,
    TaskRecord,
    WebhookTarget,
)
from smartlinkd.supervision.actor import ActorGone

pytestmark = pytest.mark.usefixtures("quick_disk")

New = Callable[..., NewExecution]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The executions that were looked for on the disk."""
    seen: list[str] = []
    read = Store.execution

    def noting(self: Store, execution_id: str, *whose: str | None) -> Execution | None:
        seen.append(execution_id)
        return read(self, execution_id, *whose)

    monkeypatch.setattr(Store, "execution", noting)
    return seen


async def created(journal: Journal, given: NewExecution) -> str:
    return (await journal.create(given, idempotency=None)).id


async def test_who_asks_again_is_answered_without_the_disk(
    journal: Journal, new: New, reads: list[str]
) -> None:
    id_ = await created(journal, new())
    first = await journal.execution(id_)

    assert await journal.execution(id_, crew="deal-post", owner="") == first
    assert reads == [id_]


async def test_who_has_given_up_already_is_answered_nothing(journal: Journal, new: New) -> None:
    """As when it is on the disk; a client that polls and is always answered would never leave."""
    id_ = await created(journal, new())
    await journal.execution(id_)
    with trio.CancelScope() as given_up:
        given_up.cancel()
        await journal.execution(id_)
    assert given_up.cancelled_caught


async def test_after_each_change_it_is_read_again(
    journal: Journal, new: New, reads: list[str], now: datetime
) -> None:
    id_ = await created(journal, new())
    await journal.execution(id_)

    await journal.record(id_, Entry(Change(total_tasks=7)))
    assert (await journal.execution(id_)).total_tasks == 7  # type: ignore[union-attr]
    await journal.record(id_, Entry(Change(status=Status.COMPLETED, result="tea", finished_at=now)))
    found = await journal.execution(id_)

    assert found is not None
    assert (found.status, found.result) == (Status.COMPLETED, "tea")
    assert reads == [id_] * 2  # its end is read with it


async def test_one_that_has_ended_is_told_without_the_disk(
    journal: Journal, new: New, reads: list[str], now: datetime
) -> None:
    id_ = await created(journal, new())
    await journal.record(id_, Entry(Change(status=Status.COMPLETED, result="tea", finished_at=now)))
    reads.clear()

    found = await journal.execution(id_)

    assert found is not None
    assert (found.status, found.result) == (Status.COMPLETED, "tea")
    assert reads == []


@pytest.mark.parametrize("large", ["inputs", "task", "result"])
async def test_nothing_is_made_of_a_large_one_that_has_ended(
    journal: Journal, new: New, now: datetime, large: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be 16 MiB of it, and 32 that end together, before anybody is answered."""
    made: list[str | None] = []

    def noting(content: str | None) -> JsonValue:
        made.append(content)
        return codec.decode(content)

    monkeypatch.setattr("smartlinkd.store.executions.decode", noting)
    text = "y" * recent_module.LARGEST
    id_ = await created(journal, new(inputs={"x": text if large == "inputs" else ""}))
    if large == "task":
        await journal.record(id_, Entry(Change(new_tasks=[TaskRecord("1", output=text)])))
    result = text if large == "result" else ""
    await journal.record(
        id_, Entry(Change(status=Status.COMPLETED, result=result, finished_at=now))
    )
    assert made == []

    assert await journal.execution(id_) is not None
    assert made != []


async def test_nor_is_a_credential_opened_at_the_end(
    journal: Journal, new: New, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[tuple[WebhookTarget, ...]] = []
    open_them = outbox.targets_in_force

    def noting(*asked: Any) -> tuple[WebhookTarget, ...]:
        opened.append(open_them(*asked))
        return opened[-1]

    monkeypatch.setattr(outbox, "targets_in_force", noting)
    target = WebhookTarget("crew", "https://a.example", auth=SecretStr("Bearer swordfish"))
    id_ = await created(journal, new(webhooks=(target,)))
    call = NewDelivery(target=target, body=b"{}", due_at=now)  # or it would be dropped at the end
    end = Change(status=Status.COMPLETED, finished_at=now)
    await journal.record(id_, Entry(end, deliveries=[call]))

    assert opened == []
    found = await journal.execution(id_)
    assert found is not None
    assert found.webhooks == (target,)
    assert opened == [(target,)]


@pytest.mark.parametrize(
    "fault",
    [
        sqlite3.OperationalError("unable to open database file"),
        TypeError("unexpected keyword argument"),
        MemoryError(),
    ],
    ids=lambda fault: type(fault).__name__,
)
async def test_what_cannot_be_read_at_its_end_has_ended_all_the_same(
    journal: Journal, new: New, now: datetime, fault: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise fault

    id_ = await created(journal, new())
    with monkeypatch.context() as patch:
        patch.setattr(executions, "read", fail)
        await journal.record(
            id_, Entry(Change(status=Status.COMPLETED, result="tea", finished_at=now))
        )

    found = await journal.execution(id_)
    assert found is not None
    assert found.status is Status.COMPLETED


async def test_of_what_cannot_be_read_at_its_end_the_log_has_the_kind_alone(
    journal: Journal,
    new: New,
    now: datetime,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """SQLite's text repeats what it could not decode."""

    def fail(*_: object, **__: object) -> None:
        raise sqlite3.OperationalError("Could not decode column 'inputs' with text 'a secret'")

    caplog.set_level(logging.DEBUG)
    id_ = await created(journal, new())
    monkeypatch.setattr(executions, "read", fail)
    await journal.record(id_, Entry(Change(status=Status.COMPLETED, finished_at=now)))

    assert f"{id_} is not kept: OperationalError" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize("whose", [{"crew": "other"}, {"owner": "bob"}])
async def test_it_is_nobody_elses(
    journal: Journal, new: New, reads: list[str], whose: dict[str, str]
) -> None:
    id_ = await created(journal, new(owner="ann"))
    assert await journal.execution(id_, crew="deal-post", owner="ann") is not None

    assert await journal.execution(id_, **whose) is None
    assert reads == [id_] * 2  # as for one that there is not


async def test_what_is_forgotten_is_not_remembered(
    journal: Journal, new: New, now: datetime
) -> None:
    id_ = await created(journal, new())
    await journal.record(id_, Entry(Change(status=Status.COMPLETED, finished_at=now)))
    assert await journal.execution(id_) is not None

    assert await journal.prune(now + timedelta(days=31)) == 1

    assert await journal.execution(id_) is None


async def test_nothing_is_answered_without_a_journal(handle: Journal, new: New) -> None:
    async with trio.open_nursery() as nursery:
        await nursery.start(handle.run)
        id_ = await created(handle, new())
        await handle.execution(id_)
        nursery.cancel_scope.cancel()
    handle.mailbox.close("it is over")

    with pytest.raises(ActorGone):
        await handle.execution(id_)


async def test_one_that_is_large_is_not_kept(journal: Journal, new: New, reads: list[str]) -> None:
    id_ = await created(journal, new(inputs={"x": "y" * recent_module.LARGEST}))

    await journal.execution(id_)
    await journal.execution(id_)

    assert reads == [id_] * 2


@pytest.mark.parametrize(
    "targets",
    [
        (WebhookTarget("crew", "https://a.example", auth=SecretStr("Bearer swordfish")),),
        (WebhookTarget("crew", "https://a.example/" + "y" * 6000),) * 3,
        (WebhookTarget("stream", "https://a.example/", ("y" * 200,) * 100),),
    ],
    ids=["credential", "long addresses", "long types of events"],
)
async def test_one_with_a_credential_or_long_webhooks_is_not_kept(
    journal: Journal, new: New, reads: list[str], targets: tuple[WebhookTarget, ...]
) -> None:
    id_ = await created(journal, new(webhooks=targets))

    await journal.execution(id_)
    await journal.execution(id_)

    assert reads == [id_] * 2


async def test_all_of_them_have_no_more_than_so_many_characters(
    journal: Journal, new: New, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent_module, "LARGEST_TOGETHER", 2500)
    ids = [await created(journal, new(inputs={"x": "y" * 1000})) for _ in range(3)]
    for id_ in ids:
        await journal.execution(id_)
    reads.clear()

    for id_ in (ids[1], ids[2]):
        await journal.execution(id_)
    assert reads == []
    await journal.record(ids[2], Entry(Change(total_tasks=7)))  # makes room
    await journal.execution(ids[0])
    await journal.execution(ids[1])

    assert reads == [ids[0]]


async def test_no_more_than_so_many_are_kept_the_latest_of_them(
    journal: Journal, new: New, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent_module, "MOST", 2)
    ids = [await created(journal, new()) for _ in range(3)]
    for id_ in ids:
        await journal.execution(id_)
    reads.clear()

    for id_ in reversed(ids):
        await journal.execution(id_)

    assert reads == [ids[0]]
