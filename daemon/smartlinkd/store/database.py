"""The file, as one instance of the journal has it: whole transactions, and their errors.

Everything here blocks for as long as the disk takes, and belongs on a thread, one call at a time.
A method that writes is one transaction: when it returns, the disk has it; when it raises, nothing
was changed. Several that are to be done `together` share one, and with it the wait for the disk.

Rejected: an asynchronous wrapper that sends each statement to a thread (several times slower, and
a cancelled asker could leave a transaction half done), and a second connection for readers (one
reading of a slow disk less, for a snapshot that may be older than what its asker just wrote).
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Final, TypeVar

from pydantic import SecretBytes

from smartlinkd.store import executions, outbox, retention
from smartlinkd.store.codec import Damaged
from smartlinkd.store.disk import has_room
from smartlinkd.store.errors import damaged, explained, no_room, not_there
from smartlinkd.store.model import (
    Created,
    Delivery,
    Entry,
    Event,
    Execution,
    IdempotencyKey,
    NewExecution,
    Page,
    Retention,
    State,
    Summary,
)
from smartlinkd.store.schema import open_database
from smartlinkd.store.sealing import NotSealed, Seal

logger = logging.getLogger(__name__)

ENOUGH: Final = 1024 * 1024
"""A visit stops reading executions after so many characters: all its answers are in memory
together, and one may be 16 MiB."""


R = TypeVar("R")


class Store:
    """An open journal. Beside the errors named, each method may raise `Unavailable`, or
    `UnusableJournal` when the file turns out to be damaged."""

    def __init__(self, path: Path, key: SecretBytes) -> None:
        """Open the file, made when it is missing. `key` has 32 bytes.

        Raises `UnusableJournal`: it is damaged, of a newer version, or (`NoRoomToOpen`) on a disk
        that is full. Webhooks' credentials that are under another key are lost.
        """
        self._path = path
        self._credentials = Seal(key, "webhook credentials")
        self._cursors = Seal(key, "list cursors")
        self._shared = False  # the transaction, by several that are done together
        self._read = 0  # characters of executions, by these
        self._connection = open_database(path)
        self._file = path.stat()
        try:
            with self._reading() as connection:
                fits = outbox.key_fits(connection, self._credentials)
            if not fits:
                self._let_go_of_credentials()
        except BaseException:
            self.close()
            raise

    def _let_go_of_credentials(self) -> None:
        """They are of no use to anybody, and no reason to be without all the rest."""
        with self._writing() as connection:
            lost = outbox.drop_credentials(connection)
        text = (
            "%d credentials of webhooks were kept under another master secret of the crews, and "
            "are lost: what is still to be called is called without its Authorization header"
        )
        logger.warning(text, lost)

    def close(self) -> None:
        """Close the file. What was written stays written."""
        self._connection.close()

    def together(self, works: Sequence[Callable[[Store], object]]) -> list[object]:
        """What each of them returns, done in this order, until `ENOUGH` was read. What they write
        is one transaction, and the disk has all of it when this returns. When it raises, nothing
        was changed; nor is the fault told in the log: it comes again when each is done alone.
        """
        if not _is_there(self._path, self._file):
            raise FileNotFoundError(self._path)
        self._shared = True
        self._read = 0
        found: list[object] = []
        try:
            with self._transaction():
                for work in works:
                    found.append(work(self))
                    if self._read > ENOUGH:
                        break
        finally:
            self._shared = False
        return found

    def create(
        self,
        new: NewExecution,
        key: IdempotencyKey | None,
        entry: Entry | None = None,
    ) -> Created:
        """See `Journal.create`."""
        with self._writing() as connection:
            created = executions.create(connection, self._credentials, new, key)
            if created.is_new and not has_room(self._path.parent):
                raise no_room()  # SQLite may have found a page: its worker finds nothing
            if created.is_new and entry is not None:
                executions.record(connection, self._credentials, new.id, entry)
            return created

    def created_by(self, crew: str, owner: str, key: IdempotencyKey, now: datetime) -> str | None:
        """See `Journal.created_by`."""
        with self._reading() as connection:
            return executions.created_by(connection, crew, owner, key, now)

    def record(self, execution_id: str, entry: Entry) -> None:
        """See `Journal.record`."""
        with self._writing() as connection:
            executions.record(connection, self._credentials, execution_id, entry)

    def execution(
        self, execution_id: str, crew: str | None = None, owner: str | None = None
    ) -> Execution | None:
        """See `Journal.execution`."""
        with self._reading() as connection:
            found = executions.read(
                connection, self._credentials, execution_id, crew=crew, owner=owner
            )
        if found is None:
            return None
        execution, size = found
        self._read += size
        return execution

    def executions(
        self, crew: str, owner: str | None, state: State | None, limit: int, cursor: str | None
    ) -> Page:
        """See `Journal.executions`."""
        with self._reading() as connection:
            return executions.page(
                connection,
                self._cursors,
                crew,
                owner=owner,
                state=state,
                limit=limit,
                cursor=cursor,
            )

    def summary(self, execution_id: str, crew: str | None, owner: str | None) -> Summary | None:
        """See `Journal.summary`."""
        with self._reading() as connection:
            return executions.summary(connection, execution_id, crew=crew, owner=owner)

    def events(self, execution_id: str, after: int, limit: int, offset: int = 0) -> list[Event]:
        """See `Journal.events`."""
        with self._reading() as connection:
            return executions.events(
                connection, execution_id, after=after, limit=limit, offset=offset
            )

    def count_bare_events(self, execution_id: str, kind: str) -> int:
        """See `Journal.count_bare_events`."""
        with self._reading() as connection:
            return executions.count_bare_events(connection, execution_id, kind)

    def unfinished(self) -> list[Summary]:
        """See `Journal.unfinished`."""
        with self._reading() as connection:
            return executions.unfinished(connection)

    def due_deliveries(
        self,
        now: datetime,
        limit: int,
        except_ids: Collection[int] = (),
        except_origins: Collection[str] = (),
    ) -> list[Delivery]:
        """See `Journal.due_deliveries`."""
        with self._reading() as connection:
            return outbox.due(
                connection,
                self._credentials,
                now,
                limit,
                except_ids=except_ids,
                except_origins=except_origins,
            )

    def done(self, delivery_id: int) -> None:
        """See `Journal.done`."""
        with self._writing() as connection:
            outbox.done(connection, delivery_id)

    def put_off(self, delivery_id: int, next_at: datetime) -> None:
        """See `Journal.put_off`."""
        with self._writing() as connection:
            outbox.put_off(connection, delivery_id, next_at)

    def give_up_deliveries(
        self, origin: str, before: datetime, except_ids: Collection[int]
    ) -> Counter[tuple[str, str]]:
        """See `Journal.give_up_deliveries`."""
        with self._writing() as connection:
            return outbox.give_up(connection, origin, before, except_ids)

    def prune_some(
        self, now: datetime, kept: Retention, mark: retention.Mark, *, far_keys: bool
    ) -> retention.Batch:
        """One batch of forgetting; see `Journal.prune`."""

        with self._writing() as connection:
            return retention.forget_some(connection, now, kept, mark, far_keys=far_keys)

    def give_back_some(self) -> bool:
        """Give back some of what is free in the file. Return False if there was nothing to give."""
        spare = retention.SPARE_PAGES if has_room(self._path.parent) else 0
        with self._writing() as connection:
            return retention.give_back_some(connection, spare)

    def checkpoint(self) -> None:
        """Write the log into the file, and cut both on the disk.

        In a transaction that several share this fails, and it is done alone then.
        """
        with self._reading() as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def has_room(self) -> bool:
        """Return True if the disk has room, and takes a write."""
        if not has_room(self._path.parent):
            return False
        with self._writing() as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            connection.execute(f"PRAGMA user_version = {version}")  # written even when it is that
        return True

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        if self._shared:
            if not self._connection.in_transaction:
                self._connection.execute("BEGIN IMMEDIATE")
            yield self._connection
            return
        # SQLite does not notice, and whatever is promised would be forgotten with us.
        if not _is_there(self._path, self._file):
            raise not_there(self._path)
        with self._reading() as connection, self._transaction():
            connection.execute("BEGIN IMMEDIATE")
            yield connection

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """What is begun in the block ends with it, all or nothing."""
        connection = self._connection
        try:
            yield
            if connection.in_transaction:
                connection.execute("COMMIT")
        except BaseException:  # whatever it is: it goes on below
            if connection.in_transaction:  # SQLite has ended it itself after some errors
                connection.execute("ROLLBACK")
            raise

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """The connection, with SQLite's errors told in the journal's words. Raw in a transaction
        that several share: each of them is then done again by itself, and its error comes again.
        """
        if self._shared:
            yield self._connection
            return
        try:
            yield self._connection
        except sqlite3.Error as error:
            told = explained(error, self._path)
            if told is None:
                raise
            # An error without a code is the sqlite3 module's own. Its text repeats what was read,
            # and a log would show it.
            raise told from (error if hasattr(error, "sqlite_errorcode") else None)
        except (Damaged, NotSealed) as error:
            raise damaged(self._path, str(error)) from error


def _is_there(path: Path, file: os.stat_result) -> bool:
    try:
        return os.path.samestat(path.stat(), file)
    except OSError:
        return False
