"""The store's open file: whole transactions, and SQLite's errors in the store's terms.

Every call blocks for as long as the disk takes, and belongs on a thread, one call at a time. What a
block of `writing` has written is on the disk when the outermost block ends; when that raises,
nothing was changed. Calls can share one transaction (`shared`), and with it the wait for the disk.
docs/decisions/054-one-thread-and-connection.md tells what was rejected.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from smartlinkd.state_files import disk_is_full
from smartlinkd.store import errors
from smartlinkd.store.codec import Damaged
from smartlinkd.store.errors import UnusableStore
from smartlinkd.store.schema import SCHEMA
from smartlinkd.store.sqlite import BUSY_TIMEOUT_S, NewerFile, has_room, open_database, transaction


def open_file(path: Path, *, busy_timeout_s: float = BUSY_TIMEOUT_S) -> sqlite3.Connection:
    """Open the file with all tables. Raises `UnusableStore`, of which `NoRoomToOpen` is one."""
    try:
        return open_database(path, SCHEMA, busy_timeout_s=busy_timeout_s)
    except NewerFile as file:
        raise UnusableStore(
            f"{path} was written by a newer smartlinkd ({file}): install that one again, or put "
            "back the backup from before it"
        ) from None
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


class StoreFile:
    """The open file. Each use may raise `Unavailable`, or `UnusableStore` if it is damaged."""

    def __init__(self, path: Path, *, busy_timeout_s: float) -> None:
        """Open the file; a missing one is made. Raises as `open_file` does."""
        self.connection = open_file(path, busy_timeout_s=busy_timeout_s)
        self._path = path
        self._status = path.stat()

    def close(self) -> None:
        """Close the file. What was written stays written."""
        self.connection.close()

    def has_room(self) -> bool:
        """Return True if the file's disk has room for something new."""
        return has_room(self._path.parent)

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Run the block in a transaction, which all uses in it share.

        When it raises, nothing was changed, translated or logged. The mailbox repeats each use
        alone, and an error that comes again is translated there. Raises `FileNotFoundError` if the
        file was moved away.
        """
        # SQLite goes on writing to a file that was moved away, and all of that would be lost.
        if not self._is_there():
            raise FileNotFoundError(self._path)
        with transaction(self.connection):
            yield

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Run the block in a transaction, or in the one that the caller has begun."""
        if self.connection.in_transaction:
            yield
            return
        with self.reading(), self.shared():
            yield

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Translate errors of the file in the block, except in a transaction that has begun."""
        if self.connection.in_transaction:
            yield
            return
        try:
            yield
        except sqlite3.Error as error:
            translated = errors.translate(error, self._path)
            if translated is None:
                raise
            # The text of an error without a code repeats what was read, and a log would show it.
            raise translated from (error if hasattr(error, "sqlite_errorcode") else None)
        except FileNotFoundError:
            raise errors.file_gone(self._path) from None
        except Damaged as error:
            raise errors.damaged(self._path, str(error)) from error

    def _is_there(self) -> bool:
        try:
            return os.path.samestat(self._path.stat(), self._status)
        except OSError:
            return False
