"""The disk under the journal: how long it takes, and what goes wrong with it.

SQLite is the real one, on a real file; its calls run in place of a thread (`threads.py`), so none
of them may wait. A statement that would have to, ends the call with `_Wait`, with all undone that
was done in it, and the call is made again when the wait is over. To whoever asked, it was one call
that took so long; and as with a thread, who gives up is not heard before it has ended.

What goes wrong is told as the module itself tells it; `test_contract_disk.py` holds that to it.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
import trio

from smartlinkd.store import sqlite
from tests.fakes.gate import Gate

R = TypeVar("R")

Statement = Callable[[str, Any], bool]
"""Whether a statement, with its parameters, is the one that is meant."""


@dataclass(frozen=True)
class Fault:
    """An error of SQLite's. `always`: also of what only reads; else a transaction's end fails."""

    name: str
    text: str
    kind: type[sqlite3.DatabaseError] = sqlite3.OperationalError
    always: bool = False

    def error(self) -> sqlite3.Error:
        """As the module itself makes it."""
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
    """The call has to be made again after `seconds`, or when the gate is open."""

    def __init__(self, seconds: float, gate: Gate | None = None) -> None:
        self.seconds = seconds
        self.gate = gate


class Disk:
    """How it is, from now on."""

    def __init__(self) -> None:
        self.fault: Fault | None = None
        self.slow = 0.0
        """Seconds that each transaction and each look takes."""
        self._waited = False
        self._unlocked = trio.Event()
        self._unlocked.set()
        self._gates: list[tuple[Statement, Gate]] = []

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Have every store that is opened from now on be here. Threads are in place by now."""
        disk = self

        class Connection(sqlite3.Connection):
            """One whose `timeout` is counted on trio's clock."""

            def __init__(self, *args: Any, **more: Any) -> None:
                super().__init__(*args, **{**more, "timeout": 0.0})
                self._patience: float = more["timeout"]

            def execute(self, sql: str, parameters: Any = ()) -> sqlite3.Cursor:
                if sql == "PRAGMA synchronous = FULL":
                    sql = "PRAGMA synchronous = OFF"
                disk.before(sql, parameters, self._patience)
                return super().execute(sql, parameters)

        def connect(path: Any, **more: Any) -> sqlite3.Connection:
            kind = sqlite3.Connection if "history" in str(path) else Connection
            return sqlite3.connect(path, factory=kind, **more)

        played = SimpleNamespace(**{**vars(sqlite3), "connect": connect})
        patch.setattr(sqlite, "sqlite3", played)
        patch.setattr(os, "fsync", lambda _: None)
        patch.setattr(trio.to_thread, "run_sync", self._waiting(trio.to_thread.run_sync))

    def hold(self, statement: Statement) -> Gate:
        """The next such statement waits at the gate that is returned, its transaction undone."""
        gate = Gate()
        self._gates.append((statement, gate))
        return gate

    def lock(self) -> None:
        """Another program begins to write, and does not come to an end."""
        self._unlocked = trio.Event()

    def unlock(self) -> None:
        self._unlocked.set()

    def heal(self) -> None:
        """All is well again, and nobody is held up."""
        self.fault, self.slow = None, 0.0
        self.unlock()
        gates, self._gates = self._gates, []
        for _, gate in gates:
            gate.open()

    def before(self, sql: str, parameters: Any, patience: float) -> None:
        """Called before each statement."""
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

    def _waiting(self, run: Callable[..., Awaitable[R]]) -> Callable[..., Awaitable[R]]:
        """`trio.to_thread.run_sync`, which makes a call again that had to wait."""

        async def patient(function: Callable[..., R], *args: Any, **more: Any) -> R:
            def once() -> R:
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
                        return await run(once, **more)
                    except _Wait as wait:
                        reason = wait

        return patient

    async def _wait(self, reason: _Wait) -> None:
        if reason.gate is not None:
            await reason.gate.enter()
        elif not self._unlocked.is_set():
            with trio.move_on_after(reason.seconds):
                await self._unlocked.wait()
        else:
            await trio.sleep(reason.seconds)
