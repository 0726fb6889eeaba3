"""The notify actor: tells the owner of what needs them, and outlasts what does not work of that.

The parts of the daemon say what has changed, in their own words, and go on at once: nothing of them
waits for somebody's server. Each way of telling has a board of its own (`notice.py`) and a task, so
that one which hangs or fails holds up nobody but itself. A notice is tried a few times and then
given up, with a line in the log: the next change will be told again.

What was told is in memory only. After a restart of the daemon trouble that goes on is told again
as soon as it is met again.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import trio

from daemon.conversion.account import AccountState, Standing
from daemon.logs import Event
from daemon.notify.notice import DISTANCE, Board, Notice, Place, body_of
from daemon.notify.ways import NotTold, Way
from daemon.supervision.policy import Backoff

logger = logging.getLogger(__name__)

ATTEMPTS: Final = 4
WAITS: Final = Backoff(first=5.0, longest=60.0)
"""Between them: 5, 10 and 20 s, up to a fifth less by chance."""


class Notifier:
    """What others hold. Its methods are cheap, never wait, and may be called before it runs."""

    def __init__(
        self,
        ways: Sequence[Way],
        place: Place,
        *,
        distance: float = DISTANCE,
        chance: random.Random | None = None,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._tellers = [
            _Teller(way, place, Board(distance=distance), chance or random.Random())  # noqa: S311
            for way in ways
        ]
        self._wall = wall

    def __bool__(self) -> bool:
        """Whether there is any way to tell the owner."""
        return bool(self._tellers)

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """One incarnation; what is on the boards outlives it, what was just being told does not."""
        async with trio.open_nursery() as nursery:
            for teller in self._tellers:
                nursery.start_soon(teller.run)
            task_status.started()

    def account_changed(self, account: str, state: AccountState) -> None:
        """An account, by its shown name, stands otherwise than before."""
        why = f": {state.reason}" if state.reason else ""
        self._note(
            Notice(
                subject=f"account {account}",
                account=account,
                state=state.standing,
                event=state.event,
                since=state.since,
                text=f"account {account} is now {state.standing}{why}",
                fine=state.standing is Standing.ACTIVE,
            )
        )

    def browser_down(self, why: str | None) -> None:
        """Chromium cannot be kept up, or (None) can be again."""
        self._note(
            Notice(
                subject="browser",
                state="up" if why is None else "down",
                event=Event.BROWSER_BACK if why is None else Event.BROWSER_DOWN,
                since=self._wall(),
                text="Chromium stays up again"
                if why is None
                else f"Chromium cannot be kept up, so no links are made: {why}",
                fine=why is None,
            )
        )

    def disk_full(self, full: bool) -> None:
        """The disk of the state directory takes no more, or does again."""
        self._note(
            Notice(
                subject="disk",
                state="full" if full else "has room",
                event=Event.DISK_FULL if full else Event.DISK_HAS_ROOM,
                since=self._wall(),
                text="the disk is full: crews cannot be kicked off, and what runs is held up"
                if full
                else "the disk has room again",
                fine=not full,
            )
        )

    def _note(self, notice: Notice) -> None:
        for teller in self._tellers:
            teller.note(notice)


class _Teller:
    """One way, and what is to be told by it."""

    def __init__(self, way: Way, place: Place, board: Board, chance: random.Random) -> None:
        self._way = way
        self._place = place
        self._board = board
        self._chance = chance
        self._news = trio.Event()

    def note(self, notice: Notice) -> None:
        if self._board.note(notice):
            self._news.set()
        else:
            self._lost(notice, "too much else is wrong already")

    async def run(self) -> None:
        while True:
            self._news = trio.Event()
            notice = self._board.take(trio.current_time())
            if notice is not None:
                await self._tell(notice)
                continue
            with trio.move_on_at(self._board.due_at()):
                await self._news.wait()

    async def _tell(self, notice: Notice) -> None:
        body = body_of(notice, self._place)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                await self._once(body)
            except NotTold as fault:
                if fault.final or attempt == ATTEMPTS:
                    self._lost(notice, f"{fault} (attempt {attempt})")
                    return
                wait = WAITS.wait(attempt, self._chance)
                failed = (self._way.name, notice.text, fault, wait)
                logger.info("%s: not told that %s: %s; again in %.0f s", *failed)
                await trio.sleep(wait)
            else:
                logger.info("%s: told that %s", self._way.name, notice.text)
                return

    async def _once(self, body: Mapping[str, str]) -> None:
        try:
            await self._way.tell(body)
        except NotTold:
            raise
        except Exception as error:  # noqa: BLE001 - see below
            # A bug of ours in telling of trouble is no reason for more of it. The type alone: its
            # text may hold the address.
            raise NotTold(f"a bug of the daemon's own ({type(error).__name__})") from None

    def _lost(self, notice: Notice, why: str) -> None:
        about = Event.NOTICE_LOST(account=notice.account)
        lost = (self._way.name, notice.text, why)
        logger.error("%s: gave up telling that %s: %s", *lost, extra=about)
