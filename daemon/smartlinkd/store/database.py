"""The store's database: its tables, and the work on the file as a whole."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

from pydantic import SecretBytes

from smartlinkd.store import retention
from smartlinkd.store.executions import Executions
from smartlinkd.store.file import StoreFile
from smartlinkd.store.model import Retention, StoreLimits
from smartlinkd.store.outbox import Outbox
from smartlinkd.store.sealing import Seal
from smartlinkd.store.sqlite import Synchronous, checkpoint, pragma, release_pages

logger = logging.getLogger(__name__)


class StoreDatabase:
    """The tables in an open file. Beside the errors named, each method raises as `StoreFile`."""

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
        self._limits = limits or StoreLimits()
        seal = Seal(key)
        self._file = StoreFile(
            path, synchronous=synchronous, busy_timeout_s=self._limits.busy_timeout_s
        )
        self.outbox = Outbox(self._file, seal, self._limits)
        self.executions = Executions(self._file, self.outbox, self._limits)
        try:
            lost = self.outbox.drop_foreign_credentials()
        except BaseException:
            self.close()
            raise
        if lost:
            text = (
                "%d credentials of webhooks were kept under another master secret of the crews, "
                "and are lost: what is still to be called is called without its Authorization "
                "header"
            )
            logger.warning(text, lost)

    def close(self) -> None:
        """Close the file. What was written stays written."""
        self._file.close()

    def run_together(self, works: Sequence[Callable[[StoreDatabase], object]]) -> list[object]:
        """Do the works in order and in one transaction, and return their results.

        The last ones are left out when enough was read. Raises as `StoreFile.shared`.
        """
        self.executions.chars_read = 0
        results: list[object] = []
        with self._file.shared():
            for work in works:
                results.append(work(self))
                if self.executions.chars_read > self._limits.chars_together:
                    break
        return results

    def prune_some(self, now: datetime, kept: Retention) -> retention.PruneBatch:
        """Delete one batch of what is beyond its retention; see `Store.prune`."""
        with self._file.writing():
            return retention.prune_some(
                self._file.connection, now, kept, most_rows=self._limits.pruned_rows
            )

    def release_some_pages(self) -> bool:
        """Cut some free pages off the file. Return False if there were none to cut."""
        with self._file.writing():
            return release_pages(self._file.connection, most=self._limits.pages_at_once)

    def checkpoint(self) -> None:
        """Write the log into the file, and cut both on the disk.

        In a shared transaction this fails, and is done alone then.
        """
        with self._file.reading():
            checkpoint(self._file.connection)

    def has_room(self) -> bool:
        """Return True if the disk has room, and takes a write."""
        if not self._file.has_room():
            return False
        with self._file.writing():
            version = pragma(self._file.connection, "user_version")
            # SQLite writes it all the same.
            self._file.connection.execute(f"PRAGMA user_version = {version}")
        return True
