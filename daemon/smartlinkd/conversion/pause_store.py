"""Pauses of accounts in `pauses.json`, so that they outlast the process.

A daemon that crashes or is upgraded starts again with the cookie that systemd kept. It must not
continue at a portal that has just asked for a person. A task replaces the file as a whole. See
docs/decisions/061-pauses-on-disk.md.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from math import inf
from pathlib import Path
from typing import Annotated, Final, Literal

import trio
from pydantic import AwareDatetime, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from smartlinkd.logs import LogEvent
from smartlinkd.state_files import NotSaved, StateUnusable, disk_is_full, read_private, replace_file
from smartlinkd.supervision.heartbeat import Heartbeat
from smartlinkd.threads import NoThread, on_thread

logger = logging.getLogger(__name__)

FILE: Final = "pauses.json"
MAX_COOKIES: Final = 8
"""Cookies of a pause. Of more, the last ones are kept."""
_MAX_FILE_BYTES: Final = 16 * 1024 * 1024
RETRY_S: Final = 30.0
"""Seconds until a write that failed is tried again."""

_STRICT = ConfigDict(extra="forbid", hide_input_in_errors=True)


@dataclass(frozen=True, config=_STRICT)
class Pause:
    """A paused account: the digests of the cookies that do not end the pause, and since when."""

    account: str
    cookies: tuple[str | None, ...]
    since: AwareDatetime
    is_notified: bool = False
    """True once the owner was told of it."""


@dataclass(frozen=True, config=_STRICT)
class _Saved:
    pauses: tuple[Pause, ...]
    version: Literal[2] = 2


@dataclass(frozen=True, config=_STRICT)
class _Row:
    account: str
    cookie: str | None
    since: AwareDatetime


@dataclass(frozen=True, config=_STRICT)
class _SavedBy01:
    """The file of version 0.1. A pause with several cookies is several rows."""

    version: Literal[1]
    pauses: tuple[_Row, ...]


_SAVED = TypeAdapter[_Saved | _SavedBy01](
    Annotated[_Saved | _SavedBy01, Field(discriminator="version")]
)


class PauseStore:
    """The file and the task that writes it."""

    def __init__(self, directory: Path) -> None:
        """Read the file. Blocks for the disk.

        Raises:
            StateUnusable: the file cannot be read, or is damaged.
        """
        self._directory = directory
        self.loaded = _load(directory)
        """The pauses of earlier processes."""
        self._saved = self._wanted = self.loaded
        self._retry_at = -inf  # on trio's clock
        self._wake = trio.Event()
        self._is_stopping = False
        self.heartbeat = Heartbeat(self._look)

    def keep(self, pauses: Sequence[Pause]) -> None:
        """Keep these pauses and no others. Never waits: a pause holds before it is on the disk."""
        notified = {(each.account, each.since) for each in self._wanted if each.is_notified}
        self._wanted = tuple(
            replace(each, is_notified=(each.account, each.since) in notified) for each in pauses
        )
        self._look()

    def mark_notified(self, shown_account: str, since: datetime) -> None:
        """Note that the owner was told of the pause since then. Never waits.

        A daemon that is killed before this is on the disk tells the owner once more.
        """
        self._wanted = tuple(
            replace(each, is_notified=True)
            if each.since == since and each.account.startswith(shown_account)
            else each
            for each in self._wanted
        )
        self._look()

    def stop(self) -> None:
        """Have `run` return after a last try to write."""
        self._is_stopping = True
        self._look()

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """Run one instance.

        Raises:
            OSError: the disk may have lost what it took. The next instance writes it again.
        """
        task_status.started()
        while True:
            self._wake = trio.Event()
            self.heartbeat.touch()
            await self._write()
            if self._is_stopping and not self._wake.is_set():
                return
            with trio.move_on_at(inf if self._wanted == self._saved else self._retry_at):
                await self._wake.wait()

    def _look(self) -> None:
        self._wake.set()

    async def _write(self) -> None:
        wanted = self._wanted
        is_early = trio.current_time() < self._retry_at and not self._is_stopping
        if wanted == self._saved or is_early:
            return
        try:
            content = _SAVED.dump_json(_Saved(wanted)) + b"\n"
            await on_thread(replace_file, self._directory / FILE, content)
        except (NotSaved, NoThread) as error:
            about = LogEvent.DISK_FULL() if disk_is_full(error.__cause__) else None
            text = "%s; it is tried again, and until then a pause ends with the daemon"
            logger.error(text, error, extra=about)  # noqa: TRY400 - the text is the whole of it
            self._retry_at = trio.current_time() + RETRY_S
        else:
            self._saved = wanted


def _load(directory: Path) -> tuple[Pause, ...]:
    path = directory / FILE
    content = read_private(path, most=_MAX_FILE_BYTES)
    if content is None:
        return ()
    try:
        saved = _SAVED.validate_json(content)
    except ValidationError:
        raise StateUnusable(
            f"{path} is damaged, or of another version of smartlinkd: delete it, which ends the "
            "pauses of accounts; look into the portal with an ordinary browser first"
        ) from None
    if isinstance(saved, _Saved):
        return saved.pauses
    cookies: dict[tuple[str, datetime], list[str | None]] = {}
    for row in saved.pauses:
        cookies.setdefault((row.account, row.since), []).append(row.cookie)
    # As notified: a notice would have the file replaced by one that version 0.1 does not read.
    return tuple(
        Pause(account, tuple(own), since, is_notified=True)
        for (account, since), own in cookies.items()
    )
