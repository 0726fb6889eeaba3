"""The expected state of the daemon: what clients sent and got, checked against its submits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

import trio

from tests.simulation.configuration import REMEMBERED

CookieId = tuple[str, str]
"""An account, and which of its cookies (see `upstream.VARIANT`)."""

SubIds = tuple[str, ...]
EXPIRED = "expired"
"""The variant whose session has expired."""
NOBODY: CookieId = ("", "")
LEAVING = 1.0
"""Seconds for which the daemon may still work for a client that has left."""
KEPT_WITHIN = 30.0
"""Seconds from the answer that tells of a pause until the pause is on disk: threads may be slow."""
HANDED_OUT_WITHIN = 100.0
"""The most seconds from a link's creation until a client has it."""


@dataclass(eq=False)
class PendingConversion:
    """A conversion that a client waits for.

    `may_be` are the cookies that the daemon may use: the request's own, or with `is_stored` those
    that may have been the stored one since the request.
    """

    may_be: set[CookieId]
    items: frozenset[int]
    sub_ids: SubIds
    is_stored: bool
    instance: int = 0


class Expectations:
    """The expectations of all clients. `fail` takes a description of what is wrong."""

    def __init__(self, fail: Callable[[str], None]) -> None:
        self.paused: dict[str, float] = {}
        """The time when the owner learned of a pause, by account."""
        self._resumed: dict[str, float] = {}
        self._all_resumed = -1.0
        self._crew_items: frozenset[int] = frozenset()
        self._ever_stored: set[CookieId] = set()
        self.stored: set[CookieId] = {NOBODY}
        """The cookies of which the vault may hold one."""
        self.made: dict[tuple[CookieId, int, SubIds], float] = {}
        """The time of the submit for a link that a client has. Another submit would be a fault."""
        self._submitted: dict[tuple[CookieId, int, SubIds], float] = {}
        self.instance = 0
        """The number of the conversion service's starts."""
        self._fail = fail
        self._open: list[PendingConversion] = []
        self._left: list[tuple[float, PendingConversion]] = []
        self._syncing: list[CookieId] = []

    # Conversions

    def conversion_sent(self, pending: PendingConversion) -> None:
        if pending.is_stored:
            pending.may_be |= self.stored
        pending.instance = self.instance
        self._open.append(pending)

    def conversion_ended(self, pending: PendingConversion) -> None:
        """Record that the client has its answer, or has left."""
        self._open.remove(pending)
        now = trio.current_time()
        self._left = [(when, old) for when, old in self._left if now - when <= LEAVING]
        self._left.append((now, pending))

    def crew_may_convert(self, items: frozenset[int]) -> None:
        """Record items that a crew may convert at any time, with the stored cookie."""
        self._crew_items |= items

    def submitted(self, cookie_id: CookieId, items: Sequence[int], sub_ids: SubIds) -> None:
        """Check a submit of the daemon.

        A client with this cookie and these sub-ids has to wait for one of the items, and clients
        must not have got any of them recently.
        """
        now = trio.current_time()
        just_left = [old for when, old in self._left if now - when <= LEAVING]
        fitting = [
            pending
            for pending in (*self._open, *just_left)
            if cookie_id in pending.may_be and _padded(pending.sub_ids) == sub_ids
        ]
        wanted = frozenset[int]().union(*(pending.items for pending in fitting))
        if cookie_id in self._ever_stored:
            wanted |= self._crew_items
        if not wanted.intersection(items):
            self._fail(f"nobody waits for a submit of {items} for {cookie_id} with {sub_ids}")
        for item in items:
            made = self.made.pop((cookie_id, item, sub_ids), -REMEMBERED)
            self._submitted[cookie_id, item, sub_ids] = now
            if now - made < REMEMBERED - HANDED_OUT_WITHIN:
                self._fail(f"item {item} of {cookie_id} with {sub_ids} was converted at {made:.3f}")

    def handed_out(
        self, pending: PendingConversion, cookie_id: CookieId, items: Iterable[int]
    ) -> None:
        """Record links that a client has: the service that made them remembers them."""
        now = trio.current_time()
        if pending.instance == self.instance:
            for item in items:
                # It may be older than `now`: whoever it was made for need not be recorded.
                key = cookie_id, item, _padded(pending.sub_ids)
                self.made.setdefault(key, self._submitted.get(key, now))

    # The stored cookie

    def syncing(self, cookie_id: CookieId) -> None:
        """Record that the owner sends a cookie: it may be the stored one from now on."""
        self._syncing.append(cookie_id)
        self.resumed(cookie_id[0])
        self._may_store(self.stored | {cookie_id})

    def synced(self, cookie_id: CookieId, *, is_certain: bool) -> None:
        """Record the answer. With `is_certain` this cookie, or one sent meanwhile, is stored."""
        self._syncing.remove(cookie_id)
        self.resumed(cookie_id[0])
        if is_certain:
            self._may_store({cookie_id, *self._syncing})

    def _may_store(self, cookies: set[CookieId]) -> None:
        self._ever_stored |= cookies
        self.stored = cookies
        for pending in self._open:
            if pending.is_stored:
                pending.may_be |= cookies

    # Restarts

    def service_began(self) -> None:
        """Record the start of a conversion service, which remembers no links."""
        self.instance += 1
        self.made.clear()
        self._submitted.clear()

    def daemon_ended(self, kept: Collection[str], *, had_disk_fault: bool) -> None:
        """Record the daemon's end. `kept` are the accounts whose pause is on its disk."""
        self.service_began()
        now = trio.current_time()
        go_on = {account: told for account, told in self.paused.items() if account in kept}
        for account, told in self.paused.items() - go_on.items():
            if now - told > KEPT_WITHIN and not had_disk_fault:
                self._fail(f"{account} was paused at {told:.3f}, which the disk does not have")
        self.resumed()
        self.paused.update(go_on)
        self._may_store({NOBODY, *self._syncing})

    # Pauses

    def owner_told_of_pause(self, account: str, asked: float) -> None:
        """Record a pause, known by the answer to a request at the time `asked`.

        A later resume may have ended the pause already.
        """
        if asked > self._resumed.get(account, self._all_resumed):
            self.paused.setdefault(account, trio.current_time())

    def resumed(self, account: str = "") -> None:
        """Record that the account's pause is over, or with "" all pauses."""
        now = trio.current_time()
        if account:
            self.paused.pop(account, None)
            self._resumed[account] = now
        else:
            self.paused.clear()
            self._resumed.clear()
            self._all_resumed = now

    def may_be_refused(self, cookie_id: CookieId) -> bool:
        """True if the account is paused, its session is expired, or there is no cookie."""
        return cookie_id[0] in self.paused or cookie_id[1] == EXPIRED or cookie_id == NOBODY


def _padded(sub_ids: SubIds) -> SubIds:
    return (*sub_ids, *[""] * (5 - len(sub_ids)))
