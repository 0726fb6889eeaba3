"""The notify actor: tells the owner of what needs them, and outlasts what does not work of that.

The parts of the daemon say what has changed, in their own words, and go on at once: nothing of them
waits for somebody's server. Each way of telling has a board of its own (`notice.py`) and a task, so
that one which hangs or fails holds up nobody but itself. A notice is tried a few times and then
given up, with a line in the log: the next change will be told again.

When the daemon ends, all that is still to be told is tried once more, and what fails then is in the
log. What was told is in memory only, but for pauses of accounts, which outlast the daemon. Other
trouble that goes on after a restart is told again as soon as it is met again.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from math import inf
from typing import Final

import trio

from smartlinkd.auth.keys import ApiKey
from smartlinkd.conversion.account import AccountState, Standing
from smartlinkd.logs import LogEvent
from smartlinkd.notify.notice import Board, DaemonIdentity, Notice, body_of
from smartlinkd.notify.ways import NotTold, Way
from smartlinkd.supervision.policy import Backoff

logger = logging.getLogger(__name__)

ATTEMPTS: Final = 4
BACKOFF: Final = Backoff(first=5.0, longest=60.0)
"""Between them: 5, 10 and 20 s, up to a fifth less by chance."""

ENDED: Final = "the daemon has ended"

AccountTold = Callable[[str, datetime], None]
"""Called with an account, by its shown name, and since when it stands as the owner now knows."""


class Notifier:
    """What others hold. Its methods are cheap, never wait, and may be called before it runs."""

    def __init__(
        self,
        ways: Sequence[Way],
        identity: DaemonIdentity,
        *,
        told: AccountTold,
        chance: random.Random | None = None,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`told` hears what the owner has been told of accounts, by one of the `ways` at least."""
        chance = chance or random.Random()  # noqa: S311 - spreads waits, guards nothing
        self._tellers = [_Teller(way, identity, Board(), told, chance) for way in ways]
        self._wall = wall

    def __bool__(self) -> bool:
        """Whether there is any way to tell the owner."""
        return bool(self._tellers)

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """One instance; what is on the boards outlives it, what was just being told does not."""
        async with trio.open_nursery() as nursery:
            for teller in self._tellers:
                nursery.start_soon(teller.run)
            task_status.started()

    def stop(self) -> None:
        """Have `run` return when each way has tried to tell what there is."""
        for teller in self._tellers:
            teller.stop()

    def account_changed(self, account: str, state: AccountState) -> None:
        """An account, by its shown name, stands otherwise than before."""
        self._note(_of_account(account, state))

    def account_was_told(self, account: str, state: AccountState) -> None:
        """The daemon before this one has told how this account stands."""
        for teller in self._tellers:
            teller.knows(_of_account(account, state))

    def cookie_missing(self, missing: bool) -> None:
        """Links are wanted and no cookie is stored, or one was synced since."""
        self._note(
            Notice(
                subject="cookie",
                state="missing" if missing else "stored",
                event=LogEvent.COOKIE_MISSING if missing else LogEvent.COOKIE_BACK,
                since=self._wall(),
                text="no cookie is stored, so no links are made: sync one"
                if missing
                else "a cookie was synced: links are made again",
                fine=not missing,
            )
        )

    def account_replaced(self, old: str, new: str) -> None:
        """The stored cookie is another account's now. Both are shown names."""
        self._note(
            Notice(
                subject="cookie's account",
                account=new,
                state="replaced",
                event=LogEvent.ACCOUNT_REPLACED,
                since=self._wall(),
                text=f"the stored cookie is now of account {new}, and was of account {old}: if "
                "nobody did that, revoke the API keys and change the password",
                is_occurrence=True,
            )
        )

    def key_made(self, key: ApiKey) -> None:
        """An API key was made."""
        self._note(
            Notice(
                subject="API keys",
                state="made",
                event=LogEvent.KEY_MADE,
                since=self._wall(),
                text=f"the API key {key.name} ({key.id}) was made, for: {', '.join(key.scopes)}; "
                "if nobody did that, revoke it and change the password",
                is_occurrence=True,
            )
        )

    def browser_down(self, why: str | None) -> None:
        """Chromium cannot be kept up, or (None) can be again."""
        self._note(
            Notice(
                subject="browser",
                state="up" if why is None else "down",
                event=LogEvent.BROWSER_BACK if why is None else LogEvent.BROWSER_DOWN,
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
                event=LogEvent.DISK_FULL if full else LogEvent.DISK_HAS_ROOM,
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


def _of_account(account: str, state: AccountState) -> Notice:
    why = f": {state.reason}" if state.reason else ""
    return Notice(
        subject=f"account {account}",
        account=account,
        state=state.standing,
        event=state.event,
        since=state.since,
        text=f"account {account} is now {state.standing}{why}",
        fine=state.standing is Standing.ACTIVE,
    )


class _Teller:
    """One way, and what is to be told by it."""

    def __init__(
        self,
        way: Way,
        identity: DaemonIdentity,
        board: Board,
        told: AccountTold,
        chance: random.Random,
    ) -> None:
        self._way = way
        self._identity = identity
        self._board = board
        self._told = told
        self._chance = chance
        self._news = trio.Event()
        self._ending = trio.Event()
        self._telling: Notice | None = None

    def stop(self) -> None:
        self._ending.set()
        self._news.set()

    def knows(self, notice: Notice) -> None:
        self._board.knows(notice)

    def note(self, notice: Notice) -> None:
        if self._board.note(notice):
            self._news.set()
        else:
            self._lost(notice, "too much else is wrong already")

    async def run(self) -> None:
        self._telling = None
        try:
            while not self._ending.is_set():
                self._news = trio.Event()
                if not await self._tell_next(trio.current_time()):
                    with trio.move_on_at(self._board.due_at()):
                        await self._news.wait()
            while await self._tell_next(inf):
                pass
        finally:
            if self._ending.is_set():
                self._lose_the_rest()

    async def _tell_next(self, now: float) -> bool:
        self._telling = self._board.take(now)
        if self._telling is None:
            return False
        await self._tell(self._telling)
        self._telling = None
        return True

    def _lose_the_rest(self) -> None:
        while self._telling is not None:
            self._lost(self._telling, ENDED)
            self._telling = self._board.take(inf)

    async def _tell(self, notice: Notice) -> None:
        body = body_of(notice, self._identity)
        for attempt in range(1, ATTEMPTS + 1):
            last = attempt == ATTEMPTS or self._ending.is_set()
            try:
                await self._once(body)
            except NotTold as fault:
                if fault.final or last:
                    self._lost(notice, f"{fault} (attempt {attempt})")
                    return
                wait = BACKOFF.wait(attempt, self._chance)
                failed = (self._way.name, notice.text, fault, wait)
                logger.info("%s: not told that %s: %s; again in %.0f s", *failed)
                with trio.move_on_after(wait):
                    await self._ending.wait()
            else:
                logger.info("%s: told that %s", self._way.name, notice.text)
                if notice.account and not notice.is_occurrence:
                    self._told(notice.account, notice.since)
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
        about = LogEvent.NOTICE_LOST(account=notice.account)
        lost = (self._way.name, notice.text, why)
        logger.error("%s: gave up telling that %s: %s", *lost, extra=about)
