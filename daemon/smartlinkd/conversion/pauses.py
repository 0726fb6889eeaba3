"""Pauses of accounts, on the disk: what was promised to a portal is no matter of one process.

The problem: an account that is paused stays so until its owner has been there. But a daemon that
crashes, hangs or is upgraded is started again, with the cookie that the service manager kept for
it, and would go on at a portal that has just asked for a person.

The choice: one file in the state directory, replaced as a whole by a task of its own. Whoever
pauses an account does not wait for it, since the pause holds from that moment on; a disk that does
not take it is tried again. Only pauses are kept: an account that has merely lost its session finds
that out at its next submit, and does no harm by it.

An older daemon refuses unknown fields, so the format must not grow. Therefore a pause with several
cookies is several rows (an older daemon goes by the last), and which pauses the owner was not told
of is in a second file, written first.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from math import inf
from pathlib import Path
from typing import Final, Literal

import trio
from pydantic import AwareDatetime, ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as model

from smartlinkd.logs import LogEvent
from smartlinkd.state_files import NotSaved, StateUnusable, disk_is_full, read_private, replace_file
from smartlinkd.supervision.heartbeat import Heartbeat
from smartlinkd.threads import NoThread, on_thread

logger = logging.getLogger(__name__)

FILE: Final = "pauses.json"
UNTOLD_FILE: Final = "pauses-untold.json"
MOST_COOKIES: Final = 8
"""Of a pause. Those that came into it meanwhile; of more, the last."""
MAX_FILE: Final = 16 * 1024 * 1024
"""Bytes read of each. A row has some 200, or 4300 with the longest name that an account can have,
and there are `MOST_COOKIES` of as many accounts as are known."""

RETRY: Final = 30.0
"""Seconds until a disk that did not take it is tried again."""

_STRICT = ConfigDict(extra="forbid", hide_input_in_errors=True)


@dataclass(frozen=True)
class Pause:
    """A paused account: its name, the digests of the cookies that came into trouble (the first, and
    those that were under way already), and since when. `told` is whether the owner knows."""

    account: str
    cookies: tuple[str | None, ...]
    since: datetime
    told: bool = False


@model(frozen=True, config=_STRICT)
class _Row:
    account: str
    cookie: str | None
    since: AwareDatetime


_Rows = tuple[_Row, ...]


@model(frozen=True, config=_STRICT)
class _Saved:
    version: Literal[1]
    pauses: _Rows


_SAVED = TypeAdapter(_Saved)


class Pauses:
    """The files, and the task that writes them. `kept` is what they had when the daemon started."""

    def __init__(self, directory: Path) -> None:
        """Blocks for the disk. Raises `StateUnusable`."""
        self._directory = directory
        self._on_disk = {name: _load(directory / name) for name in (UNTOLD_FILE, FILE)}
        self.kept = _pauses(self._on_disk[FILE], self._on_disk[UNTOLD_FILE])
        self._saved = self._wanted = self.kept
        self._refused: tuple[Pause, ...] | None = None
        self._again_at = -inf
        """When what the disk has refused is tried again, on trio's clock."""
        self._wake = trio.Event()
        self._stopping = False
        self.heartbeat = Heartbeat(self._look)

    def keep(self, pauses: Sequence[Pause]) -> None:
        """These are all that there are now. Does not wait."""
        told = {(each.account, each.since) for each in self._wanted if each.told}
        self._wanted = tuple(
            replace(each, told=(each.account, each.since) in told) for each in pauses
        )
        self._look()

    def owner_knows(self, account: str, since: datetime) -> None:
        """The owner was told of the pause since then, of the account that is shown so. Not waited
        for either: who is killed before that is on the disk tells it once more."""
        self._wanted = tuple(
            replace(each, told=True)
            if each.since == since and each.account.startswith(account)
            else each
            for each in self._wanted
        )
        self._look()

    def stop(self) -> None:
        """Have `run` return when it has tried to write what there is."""
        self._stopping = True
        self._look()

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """One instance. Ends with `OSError` when the disk may have lost what it took."""
        task_status.started()
        while True:
            self._wake = trio.Event()
            self.heartbeat.touch()
            await self._write()
            if self._stopping and not self._wake.is_set():
                return
            with trio.move_on_at(inf if self._wanted == self._saved else self._again_at):
                await self._wake.wait()

    def _look(self) -> None:
        self._wake.set()

    async def _write(self) -> None:
        wanted = self._wanted
        too_soon = trio.current_time() < self._again_at and not self._stopping
        if wanted == self._saved or (wanted == self._refused and too_soon):
            return
        try:
            await on_thread(self._replace, wanted)
        except (NotSaved, NoThread) as error:
            about = LogEvent.DISK_FULL() if disk_is_full(error.__cause__) else None
            text = "%s; it is tried again, and until then a pause ends with the daemon"
            logger.error(text, error, extra=about)  # noqa: TRY400 - the text is the whole of it
            self._refused, self._again_at = wanted, trio.current_time() + RETRY
        else:
            self._saved = wanted

    def _replace(self, wanted: Sequence[Pause]) -> None:
        untold = [pause for pause in wanted if not pause.told]
        for name, pauses in {UNTOLD_FILE: untold, FILE: wanted}.items():
            rows = _rows(pauses)
            if rows != self._on_disk[name]:
                replace_file(self._directory / name, _SAVED.dump_json(_Saved(1, rows)) + b"\n")
                self._on_disk[name] = rows


def _rows(pauses: Sequence[Pause]) -> _Rows:
    return tuple(_Row(p.account, cookie, p.since) for p in pauses for cookie in p.cookies)


def _pauses(rows: _Rows, untold: _Rows) -> tuple[Pause, ...]:
    """A pause that is in no second file is one of a daemon that had none, and counts as told."""
    cookies: dict[tuple[str, datetime], list[str | None]] = {}
    for row in rows:
        cookies.setdefault((row.account, row.since), []).append(row.cookie)
    told_not = {(row.account, row.since) for row in untold}
    return tuple(
        Pause(account, tuple(own), since, told=(account, since) not in told_not)
        for (account, since), own in cookies.items()
    )


def _load(path: Path) -> _Rows:
    content = read_private(path, most=MAX_FILE)
    if content is None:
        return ()
    try:
        return _SAVED.validate_json(content).pauses
    except ValidationError:
        what = (
            "ends the pauses of accounts; look into the portal with an ordinary browser first"
            if path.name == FILE
            else "has the pauses of accounts taken for told"
        )
        raise StateUnusable(
            f"{path} is damaged, or of another version of smartlinkd: delete it, which {what}"
        ) from None
