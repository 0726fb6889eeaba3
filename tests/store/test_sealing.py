"""Webhook credentials: never in clear on the disk, and not longer there than they are needed."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pydantic import SecretBytes, SecretStr

from smartlinkd.store.database import StoreDatabase
from smartlinkd.store.errors import UnusableStore
from smartlinkd.store.model import (
    Change,
    ExecutionUpdate,
    NewDelivery,
    Status,
    WebhookTarget,
)
from smartlinkd.store.sealing import Seal
from tests.store.test_actor import open_files

Create = Callable[..., str]

SECRET = "Bearer swordfish-0123456789"
TARGET = WebhookTarget("crew", "https://a.example", auth=SecretStr(SECRET))
OTHER = WebhookTarget("task", "https://b.example", auth=SecretStr(SECRET))


def kept(path: Path) -> int:
    """How many credentials the file holds."""
    with closing(sqlite3.connect(path)) as connection:
        (count,) = connection.execute(
            "SELECT count(*) FROM webhooks WHERE credential IS NOT NULL"
        ).fetchone()
    return int(count)


def queue(store: StoreDatabase, execution_id: str, now: datetime, change: Change) -> int:
    store.record(
        execution_id, ExecutionUpdate(change, deliveries=[NewDelivery(TARGET, b"{}", now)])
    )
    return store.due_deliveries(now, 10)[-1].id


def test_credential_is_read_back_and_is_not_in_the_file(
    store: StoreDatabase, create: Create, path: Path, now: datetime
) -> None:
    execution_id = create(webhooks=(TARGET,))
    queue(store, execution_id, now, Change())

    execution = store.execution(execution_id)
    assert execution is not None
    assert execution.webhooks == (TARGET,)
    assert store.due_deliveries(now, 1)[0].target == TARGET
    content = b"".join(file.read_bytes() for file in path.parent.iterdir())
    assert execution_id.encode() in content
    assert b"swordfish" not in content
    store.close()
    assert b"swordfish" not in path.read_bytes()


def test_credential_is_in_no_repr(store: StoreDatabase, create: Create, now: datetime) -> None:
    execution_id = create(webhooks=(TARGET,))
    queue(store, execution_id, now, Change())

    shown = repr((store.execution(execution_id), store.due_deliveries(now, 1), TARGET))

    assert "swordfish" not in shown


def test_credential_stays_while_the_execution_runs(
    store: StoreDatabase, create: Create, path: Path, now: datetime
) -> None:
    execution_id = create(webhooks=(TARGET,))

    store.remove_delivery(queue(store, execution_id, now, Change()))

    assert kept(path) == 1


def test_credential_is_deleted_with_the_last_delivery_after_the_end(
    store: StoreDatabase, create: Create, path: Path, now: datetime
) -> None:
    execution_id = create(webhooks=(TARGET,))
    first = queue(store, execution_id, now, Change())
    queue(store, execution_id, now, Change(status=Status.STOPPED, finished_at=now))

    store.remove_delivery(first)
    (last,) = (each.id for each in store.due_deliveries(now, 10))
    store.reschedule(last, now)
    assert kept(path) == 1
    store.remove_delivery(last)

    assert kept(path) == 0
    execution = store.execution(execution_id)
    assert execution is not None
    assert execution.webhooks == (WebhookTarget("crew", "https://a.example"),)


def test_credential_is_deleted_at_an_end_without_deliveries(
    store: StoreDatabase, create: Create, path: Path, now: datetime, finish: Callable[..., None]
) -> None:
    execution_id = create(webhooks=(TARGET, OTHER))
    end = Change(status=Status.STOPPED, finished_at=now)
    queue(store, execution_id, now, end)
    assert kept(path) == 1  # of the two: the one that is waited for

    finish(create(webhooks=(OTHER,)))

    assert kept(path) == 1


def test_credential_of_a_replaced_target_is_deleted_with_its_last_delivery(
    store: StoreDatabase, create: Create, path: Path, now: datetime
) -> None:
    execution_id = create(webhooks=(TARGET, OTHER))
    waiting = queue(store, execution_id, now, Change())

    store.record(execution_id, ExecutionUpdate(Change(webhooks=())))
    assert kept(path) == 1
    store.remove_delivery(waiting)

    assert kept(path) == 0


def test_new_credential_of_an_address_is_for_later_deliveries(
    store: StoreDatabase, create: Create, now: datetime
) -> None:
    execution_id = create(webhooks=(TARGET,))
    waiting = queue(store, execution_id, now, Change())
    renewed = WebhookTarget(TARGET.kind, TARGET.url, auth=SecretStr("Bearer renewed"))

    store.record(
        execution_id,
        ExecutionUpdate(Change(webhooks=(renewed,)), deliveries=[NewDelivery(renewed, b"{}", now)]),
    )

    assert [(each.id, each.target) for each in store.due_deliveries(now, 10)] == [(waiting, TARGET)]
    store.remove_delivery(waiting)
    assert [each.target for each in store.due_deliveries(now, 10)] == [renewed]


def test_other_key_loses_credentials_and_nothing_else(
    store: StoreDatabase,
    create: Create,
    open_store: Callable[..., StoreDatabase],
    path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As when the crews' master secret had to be replaced."""
    now = datetime.now(UTC)
    execution_id = create(webhooks=(TARGET,))
    waiting = queue(store, execution_id, now, Change())
    store.close()

    again = open_store(SecretBytes(b"x" * 32))
    bare = WebhookTarget(TARGET.kind, TARGET.url)
    execution = again.execution(execution_id)
    assert execution is not None
    assert execution.webhooks == (bare,)
    assert [(each.id, each.target) for each in again.due_deliveries(now, 10)] == [(waiting, bare)]
    assert kept(path) == 0
    (record,) = [each for each in caplog.records if each.levelname == "WARNING"]
    assert record.getMessage().startswith("1 credentials of webhooks were kept under another")


def test_damaged_credential_is_not_taken_for_another_key(
    store: StoreDatabase, create: Create, open_store: Callable[..., StoreDatabase], path: Path
) -> None:
    first, other = create(webhooks=(TARGET,)), create(webhooks=(OTHER,))
    store.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE webhooks SET url = url || '/' WHERE url = ?", (TARGET.url,))
        connection.commit()

    again = open_store()
    assert kept(path) == 2
    execution = again.execution(other)
    assert execution is not None
    assert execution.webhooks == (OTHER,)
    with pytest.raises(UnusableStore, match="does not open under its key"):
        again.execution(first)


def test_damaged_file_is_closed_again(
    store: StoreDatabase, create: Create, open_store: Callable[..., StoreDatabase], path: Path
) -> None:
    """The actor is started again, and again."""
    create(webhooks=(TARGET,))
    store.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE webhooks SET events = '{'")
        connection.commit()

    # What is raised holds on to all that was under way.
    with pytest.raises(UnusableStore, match="should be JSON") as raised:
        open_store()
    assert open_files(path) == []
    assert raised.tb


def test_credential_moved_to_another_address_does_not_open(
    store: StoreDatabase, create: Create, path: Path, now: datetime
) -> None:
    execution_id = create(webhooks=(TARGET,))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE webhooks SET url = 'https://evil.example'")
        connection.commit()

    with pytest.raises(UnusableStore, match="does not open under its key"):
        store.execution(execution_id)


def test_credential_moved_to_another_execution_does_not_open(
    store: StoreDatabase, create: Create, path: Path
) -> None:
    create(webhooks=(TARGET,))
    other = create(webhooks=(WebhookTarget(TARGET.kind, TARGET.url),))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(
            "UPDATE webhooks SET credential = (SELECT max(credential) FROM webhooks)"
        )
        connection.commit()

    with pytest.raises(UnusableStore, match="does not open under its key"):
        store.execution(other)


def test_key_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="31 bytes; it needs 32"):
        Seal(SecretBytes(b"k" * 31), "anything")
