"""Accounts: their status at the portal, and the affiliate id that their links must carry.

A pause is a promise: nothing more goes upstream until the owner has acted. So accounts outlive the
restarts of the conversion actor, and their pauses outlive the process (`pause_store.py`). An
account knows nothing of the work that is done for it. See docs/decisions/060-accounts.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from math import inf
from typing import Final

from smartlinkd.conversion.cache import TTLCache
from smartlinkd.conversion.pause_store import MAX_COOKIES, Pause
from smartlinkd.logs import LogEvent
from smartlinkd.marketplace.answers import UNKNOWN_ROW, Row
from smartlinkd.marketplace.errors import HumanCheck, SessionLost
from smartlinkd.marketplace.links import affiliate_id_in
from smartlinkd.vault.cookie import Cookie

logger = logging.getLogger(__name__)

MAX_ACCOUNTS: Final = 256
"""Accounts that are kept, unless more are paused or busy."""

_SHOWN: Final = 12
"""Characters of an account's name that are shown. A user id is shorter; a digest is cut."""

_MAX_AFFILIATE_IDS: Final = 16


class AccountStatus(StrEnum):
    """An account's status, by the portal's last answer."""

    ACTIVE = "active"
    SESSION_LOST = "session lost"
    PAUSED = "paused"


_EVENTS: Final = {
    AccountStatus.ACTIVE: LogEvent.ACCOUNT_BACK,
    AccountStatus.SESSION_LOST: LogEvent.SESSION_LOST,
    AccountStatus.PAUSED: LogEvent.ACCOUNT_PAUSED,
}


@dataclass(frozen=True)
class AccountState:
    """An account's status, since when (aware UTC) and why."""

    status: AccountStatus
    since: datetime
    reason: str | None

    @property
    def event(self) -> LogEvent:
        """The log event of an account that changes to this status."""
        return _EVENTS[self.status]


AccountChanged = Callable[["Account"], None]
"""Called with an account whose status changed, or whose pause covers one more cookie."""


def state_of(pause: Pause) -> AccountState:
    """Return the state of an account that was paused in an earlier process."""
    return AccountState(AccountStatus.PAUSED, pause.since, str(HumanCheck()))


def shown_name(name: str) -> str:
    """Return an account's name as people and logs may see it."""
    return name[:_SHOWN]


def digest_of(cookie: Cookie | None) -> str | None:
    """Return the cookie's digest, or None without a cookie. Results are cached by it."""
    return cookie.digest if cookie else None


class Account:
    """One account of the marketplace.

    A human check with any cookie pauses it. A lost session counts only with its stored cookie, or
    with any as long as this process knows of no stored one.
    """

    def __init__(self, name: str, on_change: AccountChanged, pause: Pause | None = None) -> None:
        """`pause` is the one of an earlier process. It is not reported again."""
        self.name = name
        self.shown = shown_name(name)
        self.affiliate_ids = AffiliateIds(self.shown)
        self._on_change = on_change
        # In this process, or before its pause, and not replaced by another account since.
        self._is_used = pause is not None
        # The cookies that the pause or the lost session is about.
        self._troubled: tuple[str | None, ...] = ()
        # The stored cookies that this process knows of. The last one was stored last.
        self._stored: tuple[str, ...] = ()
        self.state = AccountState(AccountStatus.ACTIVE, datetime.now(UTC), None)
        if pause is not None:
            self.state, self._troubled = state_of(pause), pause.cookies
            logger.warning("account %s is still paused", self.shown)

    @property
    def is_paused(self) -> bool:
        """True if nothing may go upstream for this account."""
        return self.state.status is AccountStatus.PAUSED

    @property
    def current_pause(self) -> Pause | None:
        """The pause as it is stored on disk, or None."""
        return Pause(self.name, self._troubled, self.state.since) if self.is_paused else None

    @property
    def is_listed(self) -> bool:
        """True if the account is in use, or there is trouble."""
        return self._is_used or self.state.status is not AccountStatus.ACTIVE

    def is_superseded(self, cookie: Cookie) -> bool:
        """Return True if another cookie of this account was stored after this one."""
        return cookie.digest in self._stored[:-1]

    def mark_used(self) -> None:
        """Note that a link is wanted of this account."""
        self._is_used = True

    def mark_replaced(self) -> None:
        """Note that another account's cookie was stored in the place of this one's."""
        self._is_used = False

    def pause(self, cookie: Cookie | None) -> None:
        """Pause the account until a new cookie is stored or the owner clears it.

        The stored cookies may meet the same check, so neither they nor `cookie` count as new.
        """
        met = _latest((*self._stored, digest_of(cookie)))
        if not self.is_paused:
            self._set_status(AccountStatus.PAUSED, str(HumanCheck()), met)
        elif not set(met) <= set(self._troubled):
            self._troubled = _latest((*self._troubled, *met))
            self._on_change(self)

    def note_session_lost(self, lost: SessionLost, cookie: Cookie | None) -> None:
        """Note that a submit found no session. A pause outlasts it."""
        if self._speaks_for_account(cookie) and not self.is_paused:
            troubled = _latest((*self._troubled, digest_of(cookie)))
            self._set_status(AccountStatus.SESSION_LOST, str(lost), troubled)

    def note_links_made(self, cookie: Cookie | None) -> None:
        """Note that a submit went through, so the cookie has a session."""
        is_lost = self.state.status is AccountStatus.SESSION_LOST
        if is_lost and self._speaks_for_account(cookie):
            self._activate()

    def clear(self) -> bool:
        """Forget all trouble and the affiliate ids. Returns True if there was any trouble."""
        self.affiliate_ids.clear()
        return self._activate()

    def note_synced_cookie(
        self, cookie: Cookie, before: Cookie | None, *, keep_pause: bool = False
    ) -> None:
        """Note that a cookie of this account was stored. A new one ends all trouble.

        Args:
            before: the cookie that was stored until then, also one of another account.
            keep_pause: no cookie ends a pause.
        """
        if before is not None:
            self.affiliate_ids.inherit(cookie, before)
            if before.account == self.name:
                self._note_stored(before)
        self._note_stored(cookie)
        self._is_used = True
        if self.is_paused and keep_pause:
            text = (
                "account %s stays paused: the cookie came with an API key, which ends no pause; "
                "clear it on the page, or run `smartlinkd account clear`"
            )
            logger.info(text, self.shown)
        elif cookie.digest not in self._troubled:
            self._activate()
        elif self.is_paused:
            # Whoever synced it was told that it is stored, and may expect the pause to end.
            text = (
                "account %s stays paused: the cookie that was synced is not a new one; sync one "
                "that is, or run `smartlinkd account clear`"
            )
            logger.warning(text, self.shown)

    def _note_stored(self, cookie: Cookie) -> None:
        others = (each for each in self._stored if each != cookie.digest)
        self._stored = (*others, cookie.digest)[-MAX_COOKIES:]

    def _speaks_for_account(self, cookie: Cookie | None) -> bool:
        # A request may bring a cookie of its own, and a submit with the one before may end late.
        return not self._stored or digest_of(cookie) == self._stored[-1]

    def _activate(self) -> bool:
        had_trouble = self.state.status is not AccountStatus.ACTIVE
        self._set_status(AccountStatus.ACTIVE, None, ())
        return had_trouble

    def _set_status(
        self, status: AccountStatus, reason: str | None, troubled: tuple[str | None, ...]
    ) -> None:
        self._troubled = troubled
        if status is not self.state.status:
            why = f": {reason}" if reason else ""
            self.state = AccountState(status, datetime.now(UTC), reason)
            about = self.state.event(account=self.shown)
            logger.warning("account %s is now %s%s", self.shown, status, why, extra=about)
            self._on_change(self)


def _latest(digests: tuple[str | None, ...]) -> tuple[str | None, ...]:
    return tuple(dict.fromkeys(digests))[-MAX_COOKIES:]


class AffiliateIds:
    """The affiliate ids that the links of one account must carry, one for each of its cookies.

    The portal may make a link under another affiliate id, and would pay somebody else. Only the
    long links tell the id. So the first links that are made with a cookie define it. Each cookie
    has its own, since a cookie that came with a request may forge its user id.
    """

    def __init__(self, shown: str) -> None:
        """`shown` is the account's name as logs may have it."""
        self._shown = shown
        self._ids = TTLCache[str | None, str](ttl_s=inf, max_size=_MAX_AFFILIATE_IDS)

    def reject_foreign(self, rows: Sequence[Row], cookie: Cookie | None) -> list[Row]:
        """Return `rows`, each link with a foreign affiliate id replaced by an unknown error.

        Of several ids among the first links of a cookie, the most frequent one counts.
        """
        found = [affiliate_id_in(row.long_link) if row.long_link else None for row in rows]
        own = self._ids.get(digest_of(cookie)) or max(
            filter(None, found), key=found.count, default=None
        )
        if own is not None:
            self._ids.put(digest_of(cookie), own)
        foreign = set(filter(None, found)) - {own}
        if foreign:
            logger.warning(
                "account %s: links that earn for %s, not for %s, are not given out; if both ids "
                "are yours, run `smartlinkd account clear`: the next links then decide",
                self._shown,
                ", ".join(sorted(foreign)),
                own,
            )
        return [
            UNKNOWN_ROW if id_ in foreign else row for id_, row in zip(found, rows, strict=True)
        ]

    def inherit(self, cookie: Cookie, before: Cookie) -> None:
        """Let `cookie` have the affiliate id of `before`: the owner stored both."""
        own = self._ids.get(before.digest)
        if own is not None and self._ids.get(cookie.digest) is None:
            self._ids.put(cookie.digest, own)

    def clear(self) -> None:
        """Forget all ids. The next links define them anew."""
        self._ids.clear()
