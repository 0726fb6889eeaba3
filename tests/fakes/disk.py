"""A fake disk under the store: delays, locks and errors of a real SQLite on a real file.

SQLite's calls run in the trio thread (`threads.py`), so none of them may block. A statement that
has to wait raises `_Wait`; SQLite rolls back, and the whole call runs again after the wait. The
caller sees one long call, which cancellation does not interrupt, as with a thread.

`test_contract_disk.py` compares the errors with those of a real SQLite.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Literal, TypeVar

import pytest
import trio

from smartlinkd.store import sqlite
from tests.fakes.gate import Gate

R = TypeVar("R")

Statement = Callable[[str, Any], bool]
"""Return True if the SQL text and its parameters are those of the wanted statement."""


@dataclass(frozen=True)
class Fault:
    """An SQLite error. COMMIT raises it; if `always`, every statement does."""

    name: str
    text: str
    kind: type[sqlite3.DatabaseError] = sqlite3.OperationalError
    always: bool = False

    def error(self) -> sqlite3.Error:
        """Return the error as the `sqlite3` module creates it."""
        error = self.kind(self.text)
        error.sqlite_errorcode, error.sqlite_errorname = getattr(sqlite3, self.name), self.name
        return error


FULL = Fault("SQLITE_FULL", "database or disk is full")
LOCKED = Fault("SQLITE_BUSY", "database is locked")
BROKEN = Fault("SQLITE_IOERR", "disk I/O error")
DAMAGED = Fault(
    "SQLITE_CORRUPT", "database disk image is malformed", sqlite3.DatabaseError, always=True
)


class _Wait(BaseException):
    """The call must run again after `seconds`, or when `gate` opens."""

    def __init__(self, seconds: float, gate: Gate | None = None) -> None:
        self.seconds = seconds
        self.gate = gate


class Disk:
    """The disk's current faults."""

    def __init__(self) -> None:
        self.fault: Fault | None = None
        self.slow = 0.0
        """Seconds that each call takes."""
        self._waited = False
        self._unlocked = trio.Event()
        self._unlocked.set()
        self._gates: list[tuple[Statement, Gate]] = []

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Put every store that opens from now on onto this disk. Call `threads_in_place` first."""
        disk = self

        class Connection(sqlite3.Connection):
            """A connection whose `timeout` runs on trio's clock."""

            def __init__(self, *args: Any, **options: Any) -> None:
                super().__init__(*args, **{**options, "timeout": 0.0})
                self._patience: float = options["timeout"]

            def execute(self, sql: str, parameters: Any = ()) -> sqlite3.Cursor:
                if sql == "PRAGMA synchronous = FULL":
                    sql = "PRAGMA synchronous = OFF"
                disk.before_statement(sql, parameters, self._patience)
                return super().execute(sql, parameters)

            def __exit__(self, *error: Any) -> Literal[False]:
                try:
                    if error[0] is None:
                        disk.before_statement("COMMIT", (), self._patience)
                except BaseException:
                    self.rollback()
                    raise
                return super().__exit__(*error)

        def connect(path: Any, **options: Any) -> sqlite3.Connection:
            kind = sqlite3.Connection if "history" in str(path) else Connection
            return sqlite3.connect(path, factory=kind, **options)

        played = SimpleNamespace(**{**vars(sqlite3), "connect": connect})
        patch.setattr(sqlite, "sqlite3", played)
        patch.setattr(os, "fsync", lambda _: None)
        patch.setattr(trio.to_thread, "run_sync", self._retry_after_wait(trio.to_thread.run_sync))

    def hold(self, statement: Statement) -> Gate:
        """Make the next such statement wait at the returned gate, its transaction rolled back."""
        gate = Gate()
        self._gates.append((statement, gate))
        return gate

    def lock(self) -> None:
        """Hold SQLite's write lock, as another program may, until `unlock()`."""
        self._unlocked = trio.Event()

    def unlock(self) -> None:
        self._unlocked.set()

    def heal(self) -> None:
        """Remove all faults and open all gates."""
        self.fault, self.slow = None, 0.0
        self.unlock()
        gates, self._gates = self._gates, []
        for _, gate in gates:
            gate.open()

    def before_statement(self, sql: str, parameters: Any, patience: float) -> None:
        """Raise the fault or the wait that is due before this statement."""
        writes = sql.startswith("BEGIN IMMEDIATE")
        if not self._waited:
            if self.slow:
                raise _Wait(self.slow)
            if writes and not self._unlocked.is_set():
                raise _Wait(patience)
        if writes and not self._unlocked.is_set():
            raise LOCKED.error()
        for number, (meant, gate) in enumerate(self._gates):
            if meant(sql, parameters):
                del self._gates[number]
                raise _Wait(0.0, gate)
        if self.fault is not None and (self.fault.always or sql == "COMMIT"):
            raise self.fault.error()

    def _retry_after_wait(self, run: Callable[..., Awaitable[R]]) -> Callable[..., Awaitable[R]]:
        """Wrap `trio.to_thread.run_sync`: run a call again after its `_Wait`."""

        async def retrying(function: Callable[..., R], *args: Any, **options: Any) -> R:
            def attempt() -> R:
                self._waited = waited
                try:
                    return function(*args)
                finally:
                    self._waited = False

            waited = False
            reason: _Wait | None = None
            while True:
                with trio.CancelScope(shield=reason is not None):
                    if reason is not None:
                        await self._wait(reason)
                        waited = waited or reason.gate is None
                    try:
                        return await run(attempt, **options)
                    except _Wait as wait:
                        reason = wait

        return retrying

    async def _wait(self, reason: _Wait) -> None:
        if reason.gate is not None:
            await reason.gate.enter()
        elif not self._unlocked.is_set():
            with trio.move_on_after(reason.seconds):
                await self._unlocked.wait()
        else:
            await trio.sleep(reason.seconds)
