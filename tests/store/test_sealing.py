"""Webhook credentials: never in plain text on the disk, and deleted when no longer needed."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretBytes, SecretStr

from smartlinkd.store.database import StoreDatabase
from smartlinkd.store.model import NewDelivery, Status, WebhookTarget
from tests.store.calls import NOW, create, finish, known, record

SECRET = "Bearer swordfish-0123456789"
TARGET = WebhookTarget("crew", "https://a.example", auth=SecretStr(SECRET))
OTHER = WebhookTarget("task", "https://b.example", auth=SecretStr(SECRET))


def credential_count(path: Path) -> int:
    """Return the number of credentials in the file."""
    with closing(sqlite3.connect(path)) as connection:
        (count,) = connection.execute(
            "SELECT count(*) FROM webhooks WHERE credential IS NOT NULL"
        ).fetchone()
    return int(count)


def change_file(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)
        connection.commit()


def queue(store: StoreDatabase, execution_id: str, **change: Any) -> int:
    record(store, execution_id, deliveries=[NewDelivery(TARGET, b"{}", NOW)], **change)
    return store.outbox.due(NOW, 10)[-1].id


def test_credential_is_read_back_and_is_not_in_the_file(store: StoreDatabase, path: Path) -> None:
    execution_id = create(store, webhooks=(TARGET,))
    queue(store, execution_id)

    assert known(store, execution_id).webhooks == (TARGET,)
    assert store.outbox.due(NOW, 1)[0].target == TARGET
    assert "swordfish" not in repr((known(store, execution_id), store.outbox.due(NOW, 1)))
    content = b"".join(file.read_bytes() for file in path.parent.iterdir())
    assert execution_id.encode() in content
    assert b"swordfish" not in content
    store.close()
    assert b"swordfish" not in path.read_bytes()


def test_credential_stays_while_the_execution_runs_and_until_its_last_delivery(
    store: StoreDatabase, path: Path
) -> None:
    execution_id = create(store, webhooks=(TARGET,))
    store.outbox.remove(queue(store, execution_id))
    assert credential_count(path) == 1
    first = queue(store, execution_id)
    queue(store, execution_id, status=Status.STOPPED, finished_at=NOW)

    store.outbox.remove(first)
    (last,) = (each.id for each in store.outbox.due(NOW, 10))
    store.outbox.reschedule(last, NOW)
    assert credential_count(path) == 1
    store.outbox.remove(last)

    assert credential_count(path) == 0
    assert known(store, execution_id).webhooks == (WebhookTarget("crew", "https://a.example"),)


def test_credential_is_deleted_at_an_end_without_deliveries(
    store: StoreDatabase, path: Path
) -> None:
    execution_id = create(store, webhooks=(TARGET, OTHER))
    queue(store, execution_id, status=Status.STOPPED, finished_at=NOW)
    assert credential_count(path) == 1  # the credential of the waiting delivery

    finish(store, create(store, webhooks=(OTHER,)))

    assert credential_count(path) == 1


def test_credential_of_a_replaced_target_is_deleted_with_its_last_delivery(
    store: StoreDatabase, path: Path
) -> None:
    execution_id = create(store, webhooks=(TARGET, OTHER))
    waiting = queue(store, execution_id)

    record(store, execution_id, webhooks=())
    assert credential_count(path) == 1
    store.outbox.remove(waiting)

    assert credential_count(path) == 0


def test_new_credential_of_an_address_is_for_later_deliveries(store: StoreDatabase) -> None:
    execution_id = create(store, webhooks=(TARGET,))
    waiting = queue(store, execution_id)
    renewed = WebhookTarget(TARGET.kind, TARGET.url, auth=SecretStr("Bearer renewed"))

    record(store, execution_id, deliveries=[NewDelivery(renewed, b"{}", NOW)], webhooks=(renewed,))

    assert [(each.id, each.target) for each in store.outbox.due(NOW, 10)] == [(waiting, TARGET)]
    store.outbox.remove(waiting)
    assert [each.target for each in store.outbox.due(NOW, 10)] == [renewed]


def test_other_key_loses_credentials_and_nothing_else_and_logs_it_once(
    store: StoreDatabase,
    open_store: Callable[..., StoreDatabase],
    path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As after a replacement of the crews' master secret."""
    execution_id = create(store, webhooks=(TARGET,))
    waiting = queue(store, execution_id)
    store.close()

    again = open_store(SecretBytes(b"x" * 32))
    bare = WebhookTarget(TARGET.kind, TARGET.url)
    assert known(again, execution_id).webhooks == (bare,)
    assert [(each.id, each.target) for each in again.outbox.due(NOW, 10)] == [(waiting, bare)]
    (warning,) = [each for each in caplog.records if each.levelname == "WARNING"]
    assert warning.getMessage().startswith("credentials of webhooks do not open: ")


@pytest.mark.parametrize(
    "moved",
    [
        "url = 'https://evil.example'",
        "credential = (SELECT credential FROM webhooks WHERE number = 1)",
    ],
)
def test_credential_that_was_moved_does_not_open_and_others_do(
    store: StoreDatabase, path: Path, moved: str
) -> None:
    first, other = create(store, webhooks=(TARGET,)), create(store, webhooks=(TARGET,))
    change_file(path, f"UPDATE webhooks SET {moved} WHERE number = 2")

    (target,) = known(store, other).webhooks
    assert target.auth is None
    assert known(store, first).webhooks == (TARGET,)
