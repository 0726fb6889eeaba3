"""How an account stands with the portal, kept apart from the work that is done for it.

A pause is a promise: nothing more goes upstream until the owner has seen to it. The desk is allowed
to crash and to be started again; the promise is not. So an `Account` belongs to whoever outlives
the desk's instances, and a line only refers to it. Whoever holds it is told of each change, and
keeps the pauses where the next process finds them (`pauses.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from math import inf
from typing import Final, NoReturn

import trio

from smartlinkd.conversion.cache import whose
from smartlinkd.conversion.pause_store import MOST_COOKIES, Pause
from smartlinkd.logs import LogEvent
from smartlinkd.marketplace.answers import UNKNOWN_ROW, Row
from smartlinkd.marketplace.errors import HumanCheck, SessionLost
from smartlinkd.marketplace.links import earner
from smartlinkd.vault.cookie import Cookie

logger = logging.getLogger(__name__)

_SHOWN = 12
"""Characters of an account's name that are shown. A user id is shorter; a digest would be all that
is needed to pass for its cookie among the remembered links."""

MOST_ACCOUNTS = 256
"""That are known at a time, but for those at work."""

MANY_IN_VAIN = 10
"""After so many submits in a row without a session the owner is told, even of a cookie known as
lost or replaced."""


class Standing(StrEnum):
    """How an account stands, as far as the portal's last answer told."""

    ACTIVE = "active"
    SESSION_LOST = "session lost"
    PAUSED = "paused"


_EVENTS = {
    Standing.ACTIVE: LogEvent.ACCOUNT_BACK,
    Standing.SESSION_LOST: LogEvent.SESSION_LOST,
    Standing.PAUSED: LogEvent.ACCOUNT_PAUSED,
}


@dataclass(frozen=True)
class AccountState:
    """An account's standing, since when (aware UTC) and why."""

    standing: Standing
    since: datetime
    reason: str | None

    @property
    def event(self) -> LogEvent:
        """What the log calls it when an account has come to stand like this."""
        return _EVENTS[self.standing]


AccountChanged = Callable[["Account"], None]
"""Called with an account that stands otherwise than before, or by one more cookie's fault."""


def state_of(pause: Pause) -> AccountState:
    """How an account stands that was paused in an earlier process."""
    return AccountState(Standing.PAUSED, pause.since, str(HumanCheck()))


def shown_name(name: str) -> str:
    """An account's name as people and logs may see it."""
    return name[:_SHOWN]


MOST_EARNERS: Final = 16
"""Cookies of an account of which it is known who earns by their links."""


class Earners:
    """Who earns by the links of one account, for each of its cookies."""

    def __init__(self, shown: str) -> None:
        """`shown` is the account's name as logs may have it."""
        self._shown = shown
        self._names: dict[str, str] = {}

    def own(self, rows: Sequence[Row], cookie: Cookie | None) -> list[Row]:
        """`rows`, with an unknown error in the place of each that earns for somebody else.

        Of several names among the first links of a cookie the most frequent is its own.
        """
        names = [earner(row.long_link) if row.long_link else None for row in rows]
        known = self._names.pop(whose(cookie), None)
        own = known or max(filter(None, names), key=names.count, default=None)
        if own is not None:
            self._note(cookie, own)
        foreign = set(filter(None, names)) - {own}
        if foreign:
            logger.warning(
                "account %s: links that earn for %s, not for %s, are not given out; if both are "
                "the account's own, smartlinkd account clear has it seen anew",
                self._shown,
                ", ".join(sorted(foreign)),
                own,
            )
        return [
            UNKNOWN_ROW if name in foreign else row for name, row in zip(names, rows, strict=True)
        ]

    def inherit(self, cookie: Cookie, before: Cookie) -> None:
        """Who earns by the cookie that was stored `before` earns by this one: both are the owner's
        word."""
        own = self._names.get(whose(before))
        if own is not None and whose(cookie) not in self._names:
            self._note(cookie, own)

    def clear(self) -> None:
        """Forget all, and see it anew."""
        self._names.clear()

    def _note(self, cookie: Cookie | None, name: str) -> None:
        while len(self._names) >= MOST_EARNERS:
            del self._names[next(iter(self._names))]
        self._names[whose(cookie)] = name  # the last place: the most recently used


class Account:
    """One account: its trouble, if it has any, and which cookie that was with."""

    def __init__(self, name: str, changed: AccountChanged) -> None:
        self.name = name
        self.shown = shown_name(name)
        self.earners = Earners(self.shown)
        self._changed = changed
        self.human_check: HumanCheck | None = None
        """While it is paused: what those who ask are told."""
        self.state = AccountState(Standing.ACTIVE, datetime.now(UTC), None)
        self._is_replaced = False  # by another account, with no use since
        self._troubled: list[str | None] = []  # digests of the cookies that the trouble is with
        self._lost: list[str | None] = []  # digests of cookies whose session was lost
        self._replaced: list[str | None] = []  # digests of cookies that were stored before this one
        self._retired: list[str] = []  # the same, whatever the owner has cleared since
        self._synced: str | None = None  # digest of the cookie that came in last
        self._from_earlier_process = False
        self._in_vain = 0  # submits in a row that found no session
        self._left_alone: dict[str | None, float] = {}
        """Until when no product data is read with a cookie, on trio's clock, by its digest."""

    @classmethod
    def from_earlier_process(cls, pause: Pause, changed: AccountChanged) -> Account:
        """One that was paused when the last process ended. Nobody is told of it again."""
        account = cls(pause.account, changed)
        account.human_check = HumanCheck()
        account.state = state_of(pause)
        account._troubled = list(pause.cookies)
        account._from_earlier_process = True
        logger.warning("account %s is still paused", account.shown)
        return account

    @property
    def pause_to_keep(self) -> Pause | None:
        """Its pause, for who keeps it; None when it has none."""
        if self.human_check is None:
            return None
        return Pause(self.name, tuple(self._troubled), self.state.since)

    @property
    def is_listed(self) -> bool:
        """False once another account's cookie has replaced its own, unless it is in trouble."""
        return not self._is_replaced or self.state.standing is not Standing.ACTIVE

    @property
    def to_remember(self) -> int:
        """The more, the worse it is to forget: a pause is a promise, a lost session is told of by
        the next submit, and of one without trouble there is only who earns."""
        if self.human_check is not None:
            return 2
        left_alone = any(trio.current_time() < until for until in self._left_alone.values())
        return int(self.state.standing is not Standing.ACTIVE or left_alone)

    def leaves_products_alone(self, cookie: Cookie | None) -> bool:
        """Whether no product data is read with it, because that was refused a while ago."""
        return trio.current_time() < self._left_alone.get(_digest(cookie), -inf)

    def pause(self, check: HumanCheck, cookie: Cookie | None) -> None:
        """Nothing more goes upstream until a new cookie or the owner ends it.

        A cookie under way meanwhile, or stored meanwhile, may meet the same check: so neither
        counts as the new one that ends the pause.
        """
        if self.human_check is None:
            self.human_check = check
            self._stand(Standing.PAUSED, cookie, str(check))
        stored = () if self._synced is None else (self._synced,)
        more = [each for each in (_digest(cookie), *stored) if each not in self._troubled]
        if more:
            self._troubled = [*self._troubled, *dict.fromkeys(more)][-MOST_COOKIES:]
            self._changed(self)

    def does_without(self, cookie: Cookie) -> bool:
        """Whether another one was stored in its place, and nobody has used it since: what an old
        tab of it shows says nothing of the account."""
        return cookie.digest in self._retired

    def is_asked_with(self, cookie: Cookie | None) -> None:
        """Somebody uses it, be it the stored one or not."""
        self._is_replaced = False
        if self._retired and cookie is not None:
            self._retired = [each for each in self._retired if each != cookie.digest]

    def lost_session(self, lost: SessionLost, cookie: Cookie | None) -> None:
        """Noted for the owner, but not of a cookie that was lost before, while another one works,
        or that was replaced meanwhile. A pause outlasts it."""
        digest = _digest(cookie)
        self._in_vain += 1
        known = digest in (*self._lost, *self._replaced) and self._in_vain < MANY_IN_VAIN
        self._lost = [*(each for each in self._lost if each != digest), digest][-MOST_COOKIES:]
        if self.human_check is None and not known:
            self._stand(Standing.SESSION_LOST, cookie, str(lost))

    def made_links(self, cookie: Cookie | None) -> None:
        """A submit went through, so there is a session."""
        self._in_vain = 0
        self._lost = [each for each in self._lost if each != _digest(cookie)]
        if self.state.standing is Standing.SESSION_LOST:
            self._end_trouble()

    def leave_products_alone(self, seconds: float, cookie: Cookie | None) -> None:
        """Read no product data with this cookie for a while; links go on."""
        self._left_alone.pop(_digest(cookie), None)
        while len(self._left_alone) >= MOST_COOKIES:
            del self._left_alone[next(iter(self._left_alone))]
        self._left_alone[_digest(cookie)] = trio.current_time() + seconds

    def clear(self) -> bool:
        """The owner says that all is well: forget all trouble, and who has earned so far. True when
        there was a pause or a lost session.
        """
        self.earners.clear()
        self._left_alone.clear()
        self._lost, self._replaced = [], []
        return self._end_trouble()

    def other_account_synced(self) -> None:
        """Note that another account's cookie was stored in the place of this one's."""
        self._is_replaced = True

    def cookie_synced(
        self, cookie: Cookie, before: Cookie | None, *, keep_pause: bool = False
    ) -> None:
        """A cookie for it came in: a new one ends all trouble, and one that is known none.

        `before` is the one that was stored until then. With `keep_pause` no cookie ends a pause.
        """
        known = {*self._troubled, *self._replaced}
        if self._synced is None and not self._from_earlier_process:
            known.add(_digest(before))  # stored before this process, and before the pause
        self._synced = cookie.digest
        self._is_replaced = False
        if before is not None:
            self.earners.inherit(cookie, before)
            if before.account == self.name:
                self._replaced = [*self._replaced, before.digest][-MOST_COOKIES:]
                self._retired = [*self._retired, before.digest][-MOST_COOKIES:]
        self._replaced = [each for each in self._replaced if each != cookie.digest]
        self._retired = [each for each in self._retired if each != cookie.digest]
        if self.human_check is not None and keep_pause:
            text = (
                "account %s stays paused: the cookie came with an API key, which ends no pause; "
                "clear it on the page, or run `smartlinkd account clear`"
            )
            logger.info(text, self.shown)
        elif cookie.digest not in (self._lost if self.human_check is None else known):
            self._end_trouble()
        elif self.human_check is not None:
            # Whoever synced it was told that it is stored, and may take that for the pause's end.
            text = (
                "account %s stays paused: the cookie that was synced is not a new one; sync one "
                "that is, or run `smartlinkd account clear`"
            )
            logger.warning(text, self.shown)
        if self.state.standing is Standing.ACTIVE:  # its loss would be news
            self._lost = [each for each in self._lost if each != cookie.digest]

    def _end_trouble(self) -> bool:
        had_one = self.state.standing is not Standing.ACTIVE
        self.human_check = None
        self._in_vain = 0
        self._stand(Standing.ACTIVE, None, None)
        return had_one

    def _stand(self, standing: Standing, cookie: Cookie | None, reason: str | None) -> None:
        self._troubled = [_digest(cookie)]
        if standing is not self.state.standing:
            why = f": {reason}" if reason else ""
            self.state = AccountState(standing, datetime.now(UTC), reason)
            about = self.state.event(account=self.shown)
            logger.warning("account %s is now %s%s", self.shown, standing, why, extra=about)
            self._changed(self)


def _digest(cookie: Cookie | None) -> str | None:
    return cookie.digest if cookie else None


class Sightings:
    """With which cookies a check was seen. Holds each once, and for as long as the desk is away."""

    def __init__(self) -> None:
        self._unheard: dict[str, Cookie] = {}
        self._wake = trio.Event()

    def saw(self, cookie: Cookie) -> None:
        """A tab of this cookie's session shows a human check. Does not wait."""
        self._unheard[cookie.digest] = cookie
        self._wake.set()

    async def hear(self, pause: Callable[[Cookie], None]) -> NoReturn:
        """Call `pause` for each, as it is seen. Runs until cancelled."""
        while True:
            self._wake = trio.Event()
            for cookie in tuple(self._unheard.values()):
                pause(cookie)
                del self._unheard[cookie.digest]
            await self._wake.wait()
