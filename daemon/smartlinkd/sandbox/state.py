"""The state of one running sandbox: its faults, its counters, and the submits of each account.

The sandbox's three apps share it, in one trio thread, and change it only between checkpoints. With
it a test proves what the daemon cannot see of itself: requests were merged, one account never
submitted twice at a time, a login link was never opened, no cookie went where none belongs.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from typing import Final

import trio
from pydantic import BaseModel, ConfigDict, Field

from smartlinkd.errors import Invalid
from smartlinkd.sandbox.batch import Origins
from smartlinkd.sandbox.faults import BY_ITEM, BY_NAME, Fault, Point

SUBMITS_KEPT: Final = 1_000
"""Submits in the log; the oldest is dropped first. A load test reads the counters instead."""

MADE_KEPT: Final = 20_000
"""Short links that this sandbox has made and still resolves."""

LONGEST_DELAY: Final = 600_000
"""Milliseconds: longer than any deadline that is tested."""

Address = tuple[str, int]


@dataclass(frozen=True)
class Submit:
    """One call of batchCustomLink."""

    account: str
    originals: tuple[str, ...]
    sub_ids: tuple[tuple[str, ...], ...]
    """The distinct settings of the five places among the links: one, from the form."""


@dataclass
class AccountSubmits:
    """The submits of one account. `overlapping` is the most at the same time: 1, if all is well."""

    submits: int = 0
    links: int = 0
    overlapping: int = 0
    running: int = 0


class Delays(BaseModel):
    """The time until an answer, in milliseconds."""

    model_config = ConfigDict(extra="forbid")
    submit_ms: int = Field(default=0, ge=0, le=LONGEST_DELAY)
    product_ms: int = Field(default=0, ge=0, le=LONGEST_DELAY)


@dataclass
class Armed:
    """A fault that was switched on. `account` None is everybody."""

    fault: Fault
    left: float
    account: str | None


@dataclass
class SandboxState:
    """The state of a sandbox.

    Attributes:
        hold: the seconds that a slow answer takes.
        sever: resets the connection between two addresses, the sandbox's and the client's. None:
            that of a TCP socket of this process. A fake without sockets gives its own.
    """

    origins: Origins
    hold: float
    sever: Callable[[Address, Address], None] | None = None
    armed: list[Armed] = field(default_factory=list)
    submits: deque[Submit] = field(default_factory=lambda: deque(maxlen=SUBMITS_KEPT))
    accounts: defaultdict[str, AccountSubmits] = field(
        default_factory=lambda: defaultdict(AccountSubmits)
    )
    counters: Counter[str] = field(default_factory=Counter)
    delays: Delays = field(default_factory=Delays)
    made: OrderedDict[str, str] = field(default_factory=OrderedDict)
    closing: trio.Event = field(default_factory=trio.Event)

    def arm(self, name: str, *, times: int | None = None, account: str | None = None) -> None:
        """Switch a fault on. Raises `Invalid` if there is no such fault."""
        if name not in BY_NAME:
            raise Invalid(f"fault: there is no {name!r}; one of {', '.join(sorted(BY_NAME))}")
        self.armed.append(Armed(BY_NAME[name], times or inf, account))

    def due(self, point: Point, *, account: str | None = None, items: Sequence[int] = ()) -> str:
        """Return what goes wrong at `point` now, or "". The fault is counted, and used once."""
        mine = [
            armed
            for armed in self.armed
            if armed.fault.point is point and armed.account in (None, account)
        ]
        faults = [armed.fault for armed in mine]
        faults += [BY_ITEM[point, item] for item in items if (point, item) in BY_ITEM]
        if not faults:
            return ""
        if mine:
            mine[0].left -= 1
            if not mine[0].left:
                self.armed.remove(mine[0])
        self.counters[f"fault {faults[0].name}"] += 1
        return faults[0].behaviour

    @contextmanager
    def submitting(self, submit: Submit) -> Iterator[None]:
        """Log a submit, which runs for as long as the block does."""
        self.submits.append(submit)
        mine = self.accounts[submit.account]
        mine.submits += 1
        mine.links += len(submit.originals)
        mine.running += 1
        mine.overlapping = max(mine.overlapping, mine.running)
        try:
            yield
        finally:
            mine.running -= 1

    def keep_short_link(self, code: str, long_link: str) -> None:
        """Let the short-link listener resolve a link that the portal has made."""
        self.made[code] = long_link
        if len(self.made) > MADE_KEPT:
            self.made.popitem(last=False)

    async def hold_back(self) -> None:
        """Sleep for `hold` seconds, or until the sandbox closes."""
        with trio.move_on_after(self.hold):
            await self.closing.wait()
