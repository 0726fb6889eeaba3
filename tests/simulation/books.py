"""What is owed to whom: kept by those who ask, and held against what the daemon does."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

import trio

from tests.simulation.configuration import REMEMBERED

Whose = tuple[str, str]
"""An account, and which of its cookies."""

SubIds = tuple[str, ...]
EXPIRED = "expired"
"""As a variant: of a session that is over."""
NOBODY: Whose = ("", "")
LEAVING = 1.0
"""Seconds for which work may go on for somebody who has just left."""
KEPT_WITHIN = 30.0
"""Seconds from the news of a pause to its being on the disk: threads may be slow."""
HANDED_OUT_LATE = 100.0
"""Seconds from that moment to the one in which somebody has it, at the most."""


@dataclass(eq=False)
class Order:
    """A conversion that somebody waits for. Without `whose` it is the stored cookie's, and
    `may_be` are those that may have been stored since it was asked."""

    whose: Whose | None
    items: frozenset[int]
    sub_ids: SubIds
    instance: int = 0
    may_be: set[Whose] = field(default_factory=set)

    def fits(self, whose: Whose) -> bool:
        return whose == self.whose if self.whose is not None else whose in self.may_be


class Books:
    """Of the whole world. `broken` is told what is wrong."""

    def __init__(self, broken: Callable[[str], None]) -> None:
        self.paused: dict[str, float] = {}
        """Accounts whose owner was told that they are paused, and since when."""
        self._resumed: dict[str, float] = {}
        self._all_resumed = -1.0
        self._for_crews: frozenset[int] = frozenset()
        self._ever_stored: set[Whose] = set()
        self.stored: set[Whose] = {NOBODY}
        """What the vault may hold."""
        self.made: dict[tuple[Whose, int, SubIds], float] = {}
        """What was handed out since the service's start, which must not be asked for again."""
        self.instance = 0
        """Which instance of it this is."""
        self._broken = broken
        self._open: list[Order] = []
        self._left: list[tuple[float, Order]] = []
        self._syncing: list[Whose] = []

    # Orders

    def ordered(self, order: Order) -> None:
        order.may_be |= self.stored
        order.instance = self.instance
        self._open.append(order)

    def left(self, order: Order) -> None:
        """It was answered, or who asked has gone."""
        self._open.remove(order)
        now = trio.current_time()
        self._left = [(when, old) for when, old in self._left if now - when <= LEAVING]
        self._left.append((now, order))

    def crew_wants(self, items: frozenset[int]) -> None:
        """A crew may ask for these, whenever its turn comes, with the stored cookie."""
        self._for_crews |= items

    def submitted(self, whose: Whose, items: Sequence[int], sub_ids: SubIds) -> None:
        """The daemon submits this. Somebody has to wait for it, and all must have been asked for
        by people of the same cookie and the same sub-ids."""
        now = trio.current_time()
        just_left = [old for when, old in self._left if now - when <= LEAVING]
        fitting = [
            order
            for order in (*self._open, *just_left)
            if order.fits(whose) and _padded(order.sub_ids) == sub_ids
        ]
        wanted = frozenset[int]().union(*(order.items for order in fitting))
        if whose in self._ever_stored:
            wanted |= self._for_crews
        if not wanted.intersection(items):
            self._broken(f"nobody waits for a submit of {items} for {whose} with {sub_ids}")
        for item in items:
            made = self.made.pop((whose, item, sub_ids), -REMEMBERED)
            if now - made < REMEMBERED - HANDED_OUT_LATE:
                self._broken(f"item {item} of {whose} with {sub_ids} was converted at {made:.3f}")

    def handed_out(self, order: Order, whose: Whose, items: Iterable[int]) -> None:
        """Somebody has these now, so the service that made them remembers them."""
        now = trio.current_time()
        if order.instance == self.instance:
            for item in items:
                self.made.setdefault((whose, item, _padded(order.sub_ids)), now)

    # The stored cookie

    def syncing(self, whose: Whose) -> None:
        """Somebody sends a cookie: from now on it may be the stored one."""
        self._syncing.append(whose)
        self.resumed(whose[0])
        self._may_store(self.stored | {whose})

    def synced(self, whose: Whose, *, surely: bool) -> None:
        """They were answered: it was stored, unless others sent theirs at the same time."""
        self._syncing.remove(whose)
        self.resumed(whose[0])
        if surely:
            self._may_store({whose, *self._syncing})

    def _may_store(self, cookies: set[Whose]) -> None:
        self._ever_stored |= cookies
        self.stored = cookies
        for order in self._open:
            order.may_be |= cookies

    # Ends

    def service_began(self) -> None:
        """It remembers nothing."""
        self.instance += 1
        self.made.clear()

    def daemon_ended(self, kept: Collection[str], *, spoilt: bool) -> None:
        """So does the daemon, but for what is on its disk: these accounts' pauses, say."""
        self.service_began()
        now = trio.current_time()
        go_on = {account: told for account, told in self.paused.items() if account in kept}
        for account, told in self.paused.items() - go_on.items():
            if now - told > KEPT_WITHIN and not spoilt:
                self._broken(f"{account} was paused at {told:.3f}, which the disk does not have")
        self.resumed()
        self.paused.update(go_on)
        self._may_store({NOBODY, *self._syncing})

    # Pauses

    def told_paused(self, account: str, asked: float) -> None:
        """Its owner is told so, to what was asked then; what came after that may have ended it."""
        if asked > self._resumed.get(account, self._all_resumed):
            self.paused.setdefault(account, trio.current_time())

    def resumed(self, account: str = "") -> None:
        """A pause is over, or all of them."""
        now = trio.current_time()
        if account:
            self.paused.pop(account, None)
            self._resumed[account] = now
        else:
            self.paused.clear()
            self._resumed.clear()
            self._all_resumed = now

    def in_trouble(self, whose: Whose) -> bool:
        """Whether its links may be refused for a reason of its own."""
        return whose[0] in self.paused or whose[1] == EXPIRED or whose == NOBODY


def _padded(sub_ids: SubIds) -> SubIds:
    return (*sub_ids, *[""] * (5 - len(sub_ids)))
