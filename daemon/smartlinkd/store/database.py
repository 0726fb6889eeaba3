"""The store's open file: whole transactions, and their errors.

Every method blocks for as long as the disk takes, and belongs on a thread, one call at a time. A
method that writes is one transaction: when it returns, the disk has it; when it raises, nothing was
changed. Several calls can share one (`run_together`), and with it the wait for the disk.
docs/decisions/054-one-thread-and-connection.md tells what was rejected.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from pydantic import SecretBytes

from smartlinkd.state_files import disk_is_full
from smartlinkd.store import errors, retention
from smartlinkd.store.codec import Damaged
from smartlinkd.store.disk import has_room
from smartlinkd.store.errors import UnusableStore
from smartlinkd.store.executions import Executions
from smartlinkd.store.model import (
    Created,
    Delivery,
    Execution,
    ExecutionEvent,
    ExecutionState,
    ExecutionUpdate,
    IdempotencyKey,
    ListPage,
    NewExecution,
    Retention,
    StoreLimits,
    Summary,
)
from smartlinkd.store.outbox import Outbox
from smartlinkd.store.schema import SCHEMA
from smartlinkd.store.sealing import NotSealed, Seal
from smartlinkd.store.sqlite import (
    BUSY_TIMEOUT_S,
    NewerFile,
    Synchronous,
    checkpoint,
    open_database,
    pragma,
    release_pages,
    transaction,
)

logger = logging.getLogger(__name__)


def open_file(
    path: Path, *, synchronous: Synchronous = "FULL", busy_timeout_s: float = BUSY_TIMEOUT_S
) -> sqlite3.Connection:
    """Open the file with all tables. Raises `UnusableStore`, of which `NoRoomToOpen` is one."""
    try:
        return open_database(path, SCHEMA, synchronous=synchronous, busy_timeout_s=busy_timeout_s)
    except NewerFile as file:
        raise errors.newer(path, file) from None
    except sqlite3.Error as error:
        translated = errors.translate_at_start(error, path)
        if translated is None:
            raise
        raise translated from error
    except OSError as error:
        if disk_is_full(error):
            raise errors.no_room_to_open(path) from error
        raise UnusableStore(
            f"{path} cannot be used ({error.strerror}); let the daemon's user write to its folder"
        ) from error


class StoreDatabase:
    """The open file. Beside the errors named, each method may raise `Unavailable`, or
    `UnusableStore` if the file turns out to be damaged.
    """

    def __init__(
        self,
        path: Path,
        key: SecretBytes,
        *,
        limits: StoreLimits | None = None,
        synchronous: Synchronous = "FULL",
    ) -> None:
        """Open the file; a missing one is made.

        Args:
            key: 32 bytes. Webhook credentials that are under another key are lost.

        Raises `UnusableStore`, of which `NoRoomToOpen` is one.
        """
        self._path = path
        self._limits = limits or StoreLimits()
        self._is_shared = False  # the transaction, by several calls
        self._chars_read = 0  # of executions, by these calls
        credentials = Seal(key, "webhook credentials")
        self._connection = open_file(
            path, synchronous=synchronous, busy_timeout_s=self._limits.busy_timeout_s
        )
        self._file = path.stat()
        self._outbox = Outbox(self._connection, credentials, self._limits)
        self._executions = Executions(self._connection, self._outbox, self._limits)
        try:
            self._check_credentials()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file. What was written stays written."""
        self._connection.close()

    def run_together(self, works: Sequence[Callable[[StoreDatabase], object]]) -> list[object]:
        """Do the works in order and in one transaction, and return their results.

        The last ones are left out when enough was read. When this raises, nothing was changed, and
        nothing is logged: the error comes again when each work is done alone.
        """
        if not self._is_there():
            raise FileNotFoundError(self._path)
        self._is_shared = True
        self._chars_read = 0
        results: list[object] = []
        try:
            with transaction(self._connection):
                for work in works:
                    results.append(work(self))
                    if self._chars_read > self._limits.chars_together:
                        break
        finally:
            self._is_shared = False
        return results

    def create(
        self,
        new: NewExecution,
        key: IdempotencyKey | None,
        update: ExecutionUpdate | None = None,
    ) -> Created:
        """See `Store.create`."""
        with self._writing():
            created = self._executions.create(new, key)
            if created.is_new and not has_room(self._path.parent):
                raise errors.disk_full()  # SQLite may have found a page: the worker finds nothing
            if created.is_new and update is not None:
                self._executions.record(new.id, update)
            return created

    def created_by(self, crew: str, owner: str, key: IdempotencyKey, now: datetime) -> str | None:
        """See `Store.created_by`."""
        with self._reading():
            return self._executions.created_by(crew, owner, key, now)

    def record(self, execution_id: str, update: ExecutionUpdate) -> None:
        """See `Store.record`."""
        with self._writing():
            self._executions.record(execution_id, update)
            if update.change.get("started_at") and not has_room(self._path.parent):
                raise errors.disk_full()  # as above: its worker starts now

    def execution(
        self, execution_id: str, crew: str | None = None, owner: str | None = None
    ) -> Execution | None:
        """See `Store.execution`."""
        with self._reading():
            found = self._executions.read(execution_id, crew=crew, owner=owner)
        if found is None:
            return None
        execution, chars = found
        self._chars_read += chars
        return execution

    def executions(
        self,
        crew: str,
        owner: str | None,
        state: ExecutionState | None,
        limit: int,
        cursor: str | None,
    ) -> ListPage:
        """See `Store.executions`."""
        with self._reading():
            return self._executions.page(crew, owner=owner, state=state, limit=limit, cursor=cursor)

    def summary(self, execution_id: str, crew: str | None, owner: str | None) -> Summary | None:
        """See `Store.summary`."""
        with self._reading():
            return self._executions.summary(execution_id, crew=crew, owner=owner)

    def events(
        self, execution_id: str, after: int, limit: int, offset: int = 0
    ) -> list[ExecutionEvent]:
        """See `Store.events`."""
        with self._reading():
            return self._executions.events(execution_id, after=after, limit=limit, offset=offset)

    def count_bare_events(self, execution_id: str, kind: str) -> int:
        """See `Store.count_bare_events`."""
        with self._reading():
            return self._executions.count_bare_events(execution_id, kind)

    def unfinished(self) -> list[Summary]:
        """See `Store.unfinished`."""
        with self._reading():
            return self._executions.unfinished()

    def due_deliveries(
        self,
        now: datetime,
        limit: int,
        except_ids: Collection[int] = (),
        except_origins: Collection[str] = (),
    ) -> list[Delivery]:
        """See `Store.due_deliveries`."""
        with self._reading():
            return self._outbox.due(
                now, limit, except_ids=except_ids, except_origins=except_origins
            )

    def remove_delivery(self, delivery_id: int) -> None:
        """See `Store.remove_delivery`."""
        with self._writing():
            self._outbox.remove(delivery_id)

    def reschedule(self, delivery_id: int, next_at: datetime) -> None:
        """See `Store.reschedule`."""
        with self._writing():
            self._outbox.reschedule(delivery_id, next_at)

    def prune_some(self, now: datetime, kept: Retention, *, far_keys: bool) -> retention.PruneBatch:
        """Delete one batch of what is beyond its retention; see `Store.prune`."""
        with self._writing() as connection:
            return retention.prune_some(
                connection, now, kept, far_keys=far_keys, seconds=self._limits.prune_batch_s
            )

    def release_some_pages(self) -> bool:
        """Cut some free pages off the file. Return False if there were none to cut."""
        spare = self._limits.spare_pages if has_room(self._path.parent) else 0
        with self._writing() as connection:
            return release_pages(connection, spare=spare, most=self._limits.pages_at_once)

    def checkpoint(self) -> None:
        """Write the log into the file, and cut both on the disk.

        In a shared transaction this fails, and is done alone then.
        """
        with self._reading() as connection:
            checkpoint(connection)

    def has_room(self) -> bool:
        """Return True if the disk has room, and takes a write."""
        if not has_room(self._path.parent):
            return False
        with self._writing() as connection:
            version = pragma(connection, "user_version")
            connection.execute(f"PRAGMA user_version = {version}")  # SQLite writes it all the same
        return True

    def _check_credentials(self) -> None:
        """Delete credentials under another key: nobody can use them."""
        with self._reading():
            opens = self._outbox.opens_credentials()
        if opens:
            return
        with self._writing():
            lost = self._outbox.drop_credentials()
        text = (
            "%d credentials of webhooks were kept under another master secret of the crews, and "
            "are lost: what is still to be called is called without its Authorization header"
        )
        logger.warning(text, lost)

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Give the connection to the block, in a transaction."""
        if self._is_shared:
            if not self._connection.in_transaction:
                self._connection.execute("BEGIN IMMEDIATE")
            yield self._connection
            return
        # SQLite goes on writing to a file that was moved away, and all of that would be lost.
        if not self._is_there():
            raise errors.file_gone(self._path)
        with self._reading() as connection, transaction(connection):
            connection.execute("BEGIN IMMEDIATE")
            yield connection

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """Give the connection to the block, and translate SQLite's errors.

        In a shared transaction they stay as they are: each call is then repeated alone.
        """
        if self._is_shared:
            yield self._connection
            return
        try:
            yield self._connection
        except sqlite3.Error as error:
            translated = errors.translate(error, self._path)
            if translated is None:
                raise
            # The text of an error without a code repeats what was read, and a log would show it.
            raise translated from (error if hasattr(error, "sqlite_errorcode") else None)
        except (Damaged, NotSealed) as error:
            raise errors.damaged(self._path, str(error)) from error

    def _is_there(self) -> bool:
        try:
            return os.path.samestat(self._path.stat(), self._file)
        except OSError:
            return False
