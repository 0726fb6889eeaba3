"""What one running sandbox knows: its switches, its counters, and who submitted when.

One object shared by the three apps of one sandbox, all in one trio thread, changed only between
awaits. It is there so that a test can prove things about the daemon that the daemon cannot see of
itself: that requests were merged, that one account never submitted twice at a time, that a login
link was never opened, that no cookie went where none belongs. Every collection is bounded.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import trio

from smartlinkd.sandbox.batch import Origins
from smartlinkd.sandbox.faults import Fault, Point, Switchboard

SUBMITS_KEPT: Final = 1_000
"""Submits in the log; the oldest is dropped first. A load test reads the counters instead."""

ACCOUNTS_KEPT: Final = 10_000
"""Accounts with statistics of their own; the one that came first is dropped first."""

MADE_KEPT: Final = 20_000
"""Short links that this sandbox has made and still resolves."""


@dataclass
class Submit:
    """One call of batchCustomLink, times in seconds since the sandbox was opened."""

    account: str
    originals: tuple[str, ...]
    sub_ids: tuple[tuple[str, ...], ...]
    """The different settings of the five places among the links: one, from the form."""

    started: float
    ended: float | None = None
    outcome: str = "cut short"
    """`rows`, the name of a fault, or what the call was refused for."""


@dataclass
class AccountSubmits:
    """The submits of one account; `overlapping` is the most there were at the same moment, of which
    a good client makes 1."""

    submits: int = 0
    links: int = 0
    overlapping: int = 0
    running: int = 0


class SubmitLog:
    """The submits, by account and in order."""

    def __init__(self) -> None:
        self._opened = trio.current_time()
        self.entries: deque[Submit] = deque(maxlen=SUBMITS_KEPT)
        self.accounts: OrderedDict[str, AccountSubmits] = OrderedDict()

    @contextmanager
    def submit(
        self, account: str, originals: Sequence[str], sub_ids: Sequence[tuple[str, ...]]
    ) -> Iterator[Submit]:
        """Log one submit for as long as the block runs; the block sets its `outcome`."""
        entry = Submit(account, tuple(originals), tuple(dict.fromkeys(sub_ids)), self._now())
        self.entries.append(entry)
        mine = self._account(account)
        mine.submits += 1
        mine.links += len(entry.originals)
        mine.running += 1
        mine.overlapping = max(mine.overlapping, mine.running)
        try:
            yield entry
        finally:
            mine.running -= 1
            entry.ended = self._now()

    def _account(self, account: str) -> AccountSubmits:
        if account not in self.accounts and len(self.accounts) >= ACCOUNTS_KEPT:
            self.accounts.popitem(last=False)
        return self.accounts.setdefault(account, AccountSubmits())

    def _now(self) -> float:
        return round(trio.current_time() - self._opened, 4)


@dataclass
class Delays:
    """How long the sandbox thinks before it answers, in milliseconds."""

    submit_ms: int = 0
    product_ms: int = 0


@dataclass
class State:
    """The whole of a sandbox's memory. `hold` is how long a slow answer takes, in seconds."""

    origins: Origins
    rows: int
    hold: float
    faults: Switchboard = field(default_factory=Switchboard)
    submits: SubmitLog = field(default_factory=SubmitLog)
    counters: Counter[str] = field(default_factory=Counter)
    delays: Delays = field(default_factory=Delays)
    made: OrderedDict[str, str] = field(default_factory=OrderedDict)
    closing: trio.Event = field(default_factory=trio.Event)

    def reset(self) -> None:
        """As it was when it was opened, but for the short links that were made."""
        self.faults.clear()
        self.submits = SubmitLog()
        self.counters.clear()
        self.delays = Delays()

    def due(
        self, point: Point, *, account: str | None = None, items: Sequence[int] = ()
    ) -> Fault | None:
        """The fault that bites at `point` now, counted under its name."""
        fault = self.faults.due(point, account=account, items=items)
        if fault is not None:
            self.counters[f"fault {fault.name}"] += 1
        return fault

    def keep_short_link(self, code: str, long_link: str) -> None:
        """Let the short-link listener resolve what the portal has just made."""
        self.made[code] = long_link
        if len(self.made) > MADE_KEPT:
            self.made.popitem(last=False)

    async def hold_back(self) -> None:
        """Be slow: return after `hold` seconds, or at once when the sandbox closes."""
        with trio.move_on_after(self.hold):
            await self.closing.wait()
