"""Pauses of accounts, on the disk: what was promised to a portal is no matter of one process.

The problem: an account that is paused stays so until its owner has been there. But a daemon that
crashes, hangs or is upgraded is started again, with the cookie that the service manager kept for
it, and would go on at a portal that has just asked for a person.

The choice: one file in the state directory, replaced as a whole by a task of its own. Whoever
pauses an account does not wait for it, since the pause holds from that moment on; a disk that does
not take it is tried again. Only pauses are kept: an account that has merely lost its session finds
that out at its next submit, and does no harm by it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from math import inf
from pathlib import Path
from typing import Final, Literal

import trio
from pydantic import AwareDatetime, ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as model

from daemon.logs import Event
from daemon.state import NotSaved, StateUnusable, disk_is_full, read_private, replace_file
from daemon.supervision.pulse import Pulse
from daemon.threads import NoThread, on_thread

logger = logging.getLogger(__name__)

FILE: Final = "pauses.json"
MAX_FILE: Final = 2 * 1024 * 1024
"""Bytes read of it. A pause has some 200, or 4300 with the longest name that an account can have,
and there are as many as accounts that are known."""

RETRY: Final = 30.0
"""Seconds until a disk that did not take it is tried again."""

_STRICT = ConfigDict(extra="forbid", hide_input_in_errors=True)


@model(frozen=True, config=_STRICT)
class Pause:
    """A paused account: its name, the digest of the cookie that was in trouble first, since when,
    and the digests of those that came into it while they were under way already. `told` is whether
    the owner knows."""

    account: str
    cookie: str | None
    since: AwareDatetime
    more_cookies: tuple[str | None, ...] = ()
    told: bool = False


@model(frozen=True, config=_STRICT)
class _Saved:
    version: Literal[1]
    pauses: tuple[Pause, ...]


_SAVED = TypeAdapter(_Saved)


class Pauses:
    """The file, and the task that writes it. `kept` is what was in it when the daemon started."""

    def __init__(self, directory: Path) -> None:
        """Blocks for the disk. Raises `StateUnusable`."""
        self._path = directory / FILE
        self.kept = _load(self._path)
        self._saved = self._wanted = self.kept
        self._refused: tuple[Pause, ...] | None = None
        self._again_at = -inf
        """When what the disk has refused is tried again, on trio's clock."""
        self._wake = trio.Event()
        self._stopping = False
        self.pulse = Pulse(self._look)

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
        """One incarnation. Ends with `OSError` when the disk may have lost what it took."""
        task_status.started()
        while True:
            self._wake = trio.Event()
            self.pulse.beat()
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
        # Without what is as usual, the file is one that earlier versions can read.
        content = _SAVED.dump_json(_Saved(1, wanted), exclude_defaults=True) + b"\n"
        try:
            await on_thread(replace_file, self._path, content)
        except (NotSaved, NoThread) as error:
            about = Event.DISK_FULL() if disk_is_full(error.__cause__) else None
            text = "%s; it is tried again, and until then a pause ends with the daemon"
            logger.error(text, error, extra=about)  # noqa: TRY400 - the text is the whole of it
            self._refused, self._again_at = wanted, trio.current_time() + RETRY
        else:
            self._saved = wanted


def _load(path: Path) -> tuple[Pause, ...]:
    content = read_private(path, most=MAX_FILE)
    if content is None:
        return ()
    try:
        return _SAVED.validate_json(content).pauses
    except ValidationError:
        raise StateUnusable(
            f"{path} is damaged, or of another version of smartlinkd: delete it, which ends the "
            "pauses of accounts; look into the portal with an ordinary browser first"
        ) from None
