"""One account's line: submits merged, one at a time, and none while the account is paused.

The portal's page takes a few links at once, with one set of sub-ids, and its owner would not press
the button twice at the same moment. So each account has a line of `Ticket`s and at most one worker
that takes as many of them as fit together. Whoever is first is submitted at once; merging happens
only among those who have to wait anyway. Whoever will be gone before the portal could answer is
passed over: when many have waited for long, each would else have a submit begun, and taken back, in
its last moment.

What goes wrong is noted on the `Account`, and while that is paused the line gives out no tickets.
A line knows neither the browser nor the portal: `submit` does the work.

A submit is made for all who hold its tickets, and what is logged meanwhile names the requests of
all of them, also of those that take one of its tickets while it is under way.
"""

from __future__ import annotations

import logging
from bisect import insort
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from math import ceil
from typing import TypeVar

import trio

from smartlinkd.conversion.account import MOST_ACCOUNTS, Account, AccountChanged, AccountState
from smartlinkd.conversion.sources import MaySend, SubIds
from smartlinkd.errors import Refused, Unavailable
from smartlinkd.logs import LogContextSet, bind_log_contexts
from smartlinkd.marketplace.answers import Row
from smartlinkd.marketplace.errors import HumanCheck, SessionLost
from smartlinkd.marketplace.links import Product
from smartlinkd.metrics import DONE, LEFT
from smartlinkd.vault.cookie import Cookie

logger = logging.getLogger(__name__)

D = TypeVar("D")
Submit = Callable[[Cookie | None, Sequence[Product], SubIds, MaySend], Awaitable[Sequence[Row]]]
Waited = Callable[[float, str], None]
"""Called with seconds, and how the wait ended: `DONE` when its submit begins, `LEFT`, or the kind
of the refusal."""


LEAST_TIME = 0.5
"""Seconds that whoever waits for a link still has to have when its submit begins. A portal that is
well answers within it."""


TicketKey = tuple[str | None, SubIds, Product]


@dataclass(eq=False)
class Ticket:
    """One link that waits for its row, or for the refusal of the submit it was part of.

    All who want the same link of the same cookie with the same sub-ids hold the same ticket.
    `until` is when the last of them will be gone, on trio's clock.
    """

    cookie: Cookie | None
    product: Product
    sub_ids: SubIds
    rank: tuple[int, int]
    until: float
    holders: int = 0
    since: float = field(default_factory=trio.current_time)
    log_contexts: LogContextSet = field(default_factory=LogContextSet)
    settled: trio.Event = field(default_factory=trio.Event)
    row: Row | None = None
    refusal: Refused | None = None
    batch: _Batch | None = None

    # Cached, both: a queue is looked through often, and a digest is a hash of a whole cookie.
    @cached_property
    def fits_with(self) -> tuple[str | None, SubIds]:
        """Tickets of which this is equal can go into one submit."""
        return (self.cookie.digest if self.cookie else None, self.sub_ids)

    @cached_property
    def key(self) -> TicketKey:
        """What makes two tickets the same."""
        return (*self.fits_with, self.product)

    @property
    def submitted(self) -> bool:
        """Whether its submit has gone upstream. Before that it waits: in the line, or for a tab."""
        return self.batch is not None and self.batch.is_sent


@dataclass(eq=False)
class _Batch:
    """The tickets of one submit under way; cancelled when nobody waits for any of them."""

    tickets: list[Ticket]
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    is_sent: bool = False
    is_held: bool = False
    """It was not let go upstream, since the account is paused."""

    def log_contexts(self) -> LogContextSet:
        return LogContextSet(*(ticket.log_contexts for ticket in self.tickets))

    def leave(self, ticket: Ticket) -> None:
        self.tickets.remove(ticket)
        if not self.tickets:
            self.scope.cancel()


class Line:
    """The tickets of one account, and the worker that submits them `chunk` at a time."""

    def __init__(
        self,
        submit: Submit,
        account: Account,
        *,
        chunk: int,
        nursery: trio.Nursery,
        waited: Waited,
        reads: int,
    ) -> None:
        """`waited` is told how many seconds each ticket has stood here, also of those that leave
        without a submit: they are who waits the longest. `reads` of products run at a time."""
        self.account = account
        self._submit = submit
        self._waited = waited
        self._chunk = chunk
        self._nursery = nursery
        self._open: dict[TicketKey, Ticket] = {}  # not settled: waiting or being submitted
        self._waiting: list[Ticket] = []
        self._working = False
        self._reading: dict[trio.CancelScope, Cookie | None] = {}  # products, one scope each
        self._hands = trio.Semaphore(reads)

    @property
    def busy(self) -> bool:
        """A submit is under way or about to be, or a product is being read."""
        return self._working or bool(self._reading)

    def uses(self, cookie: Cookie) -> bool:
        """Whether a link is waited for, or a product read, with it."""
        waiting = (ticket.cookie for ticket in self._open.values())
        return cookie in (*waiting, *self._reading.values())

    def submits_waiting(self) -> int:
        """How many submits it takes to serve those who wait."""
        fitting = Counter(ticket.fits_with for ticket in self._waiting)
        return sum(ceil(count / self._chunk) for count in fitting.values())

    def check_not_paused(self) -> None:
        """Raise `HumanCheck` while the account is paused."""
        if self.account.human_check is not None:
            # One error for many: each raises it without the frames that another one added.
            raise self.account.human_check.with_traceback(None)

    def ticket(
        self,
        cookie: Cookie | None,
        product: Product,
        sub_ids: SubIds,
        rank: tuple[int, int],
        until: float,
    ) -> Ticket:
        """A place in the line, or the place of who is there already with the same link.

        Those of a lower `rank` (the number of a request, the place of a link in it) stand in front.
        `until` is when whoever takes it will be gone, on trio's clock: see LEAST_TIME.
        Raises `HumanCheck` while the account is paused. Whoever takes a ticket awaits its `row`.
        """
        self.check_not_paused()
        self.account.is_asked_with(cookie)
        new = Ticket(cookie, product, sub_ids, rank, until)
        ticket = self._open.setdefault(new.key, new)
        if ticket is new:
            insort(self._waiting, ticket, key=lambda one: one.rank)
        ticket.until = max(ticket.until, until)
        if not self._working:
            self._working = True
            self._nursery.start_soon(self._work)
        ticket.holders += 1
        ticket.log_contexts.add_current()
        return ticket

    async def row(self, ticket: Ticket) -> Row:
        """Wait for the ticket's row. Raises what its submit raised.

        A ticket whose last holder gives up waiting leaves the line, or its submit.
        """
        try:
            await ticket.settled.wait()
        finally:
            ticket.holders -= 1
            if ticket.holders == 0 and not ticket.settled.is_set():
                self._leave(ticket)
        if ticket.refusal is not None:
            raise ticket.refusal.with_traceback(None)
        assert ticket.row is not None  # noqa: S101 - a settled ticket has one or the other
        return ticket.row

    def pause(self, check: HumanCheck, cookie: Cookie | None) -> None:
        """Stop all upstream work of this account; those who wait are told why. A submit that is at
        the portal already keeps what comes of it."""
        self.account.pause(check, cookie)
        self._refuse_waiting(check, lambda _: True)
        self._stop_reading(lambda _: True)

    async def read_product(
        self, cookie: Cookie | None, read: Callable[[], Awaitable[D | None]]
    ) -> D | None:
        """What `read` gives, and whatever it raises. At most `reads` run at a time.

        None without asking while the account is paused or product data left alone. None also
        when either begins meanwhile: several reads wait for the same page, and when the first one
        is refused the others must not follow it.
        """
        if self.account.human_check is not None or self.account.leaves_products_alone(cookie):
            return None
        self.account.is_asked_with(cookie)
        with trio.CancelScope() as scope:
            self._reading[scope] = cookie
            try:
                # Waited for here, where a wait costs nobody else a place.
                async with self._hands:
                    return await read()
            finally:
                del self._reading[scope]
        return None

    def leave_products_alone(self, seconds: float, cookie: Cookie | None) -> None:
        """Read no product data with this cookie for a while, and stop what is being read; links go
        on."""
        self.account.leave_products_alone(seconds, cookie)
        self._stop_reading(lambda other: other == cookie)

    def _send(self, batch: _Batch) -> None:
        """It goes upstream from here on; raises `HumanCheck` when it must not."""
        batch.is_held = self.account.human_check is not None
        self.check_not_paused()
        batch.is_sent = True

    # The worker

    async def _work(self) -> None:
        try:
            while batch := self._next_batch():
                await self._run_batch(batch)
        finally:
            self._working = False

    def _next_batch(self) -> _Batch | None:
        """None when nobody waits, or for so short a time only that there is nothing to begin."""
        enough = trio.current_time() + LEAST_TIME
        in_time = [one for one in self._waiting if one.until >= enough]
        if not in_time:
            return None
        fitting = [one for one in in_time if one.fits_with == in_time[0].fits_with]
        batch = _Batch(fitting[: self._chunk])
        for ticket in batch.tickets:
            self._waiting.remove(ticket)
            ticket.batch = batch
            self._tell_wait(ticket, DONE)
        return batch

    async def _run_batch(self, batch: _Batch) -> None:
        tickets = list(batch.tickets)
        cookie = tickets[0].cookie
        with batch.scope, bind_log_contexts(batch.log_contexts()):
            try:
                rows = await self._submit(
                    cookie,
                    [ticket.product for ticket in tickets],
                    tickets[0].sub_ids,
                    partial(self._send, batch),
                )
            except Refused as refusal:
                self._refused(refusal, tickets, cookie, is_held=batch.is_held)
            else:
                if any(row.short_link for row in rows):  # rows alone may tell of a refusal
                    self.account.made_links(cookie)
                for ticket, row in zip(tickets, rows, strict=True):
                    self._settle(ticket, row=row)

    def _refused(
        self, refusal: Refused, tickets: list[Ticket], cookie: Cookie | None, *, is_held: bool
    ) -> None:
        shown = self.account.shown
        logger.warning("account %s: %d links were refused: %s", shown, len(tickets), refusal)
        for ticket in tickets:
            self._settle(ticket, refusal=refusal)
        if isinstance(refusal, HumanCheck):
            if not is_held:  # by the check that another cookie has met
                self.pause(refusal, cookie)
        elif isinstance(refusal, SessionLost):
            self.account.lost_session(refusal, cookie)
            self._refuse_waiting(refusal, lambda other: other.cookie == cookie)

    def _refuse_waiting(self, refusal: Refused, which: Callable[[Ticket], bool]) -> None:
        refused = [ticket for ticket in self._waiting if which(ticket)]
        self._waiting = [ticket for ticket in self._waiting if not which(ticket)]
        for ticket in refused:
            self._tell_wait(ticket, type(refusal).__name__)
            self._settle(ticket, refusal=refusal)

    def _stop_reading(self, which: Callable[[Cookie | None], bool]) -> None:
        for scope, cookie in self._reading.items():
            if which(cookie):
                scope.cancel()

    def _settle(
        self, ticket: Ticket, *, row: Row | None = None, refusal: Refused | None = None
    ) -> None:
        # One that was left by all is not open any more, and a newer one may be in its place.
        if self._open.get(ticket.key) is ticket:
            del self._open[ticket.key]
        ticket.row, ticket.refusal = row, refusal
        ticket.settled.set()

    def _leave(self, ticket: Ticket) -> None:
        del self._open[ticket.key]
        if ticket.batch is not None:
            ticket.batch.leave(ticket)
        else:
            self._waiting.remove(ticket)
            self._tell_wait(ticket, LEFT)

    def _tell_wait(self, ticket: Ticket, outcome: str) -> None:
        self._waited(trio.current_time() - ticket.since, outcome)


class Lines:
    """All accounts' lines, which `make` makes. `queue` bounds the submits that may wait, over all
    accounts; `changed` is told of those that stand otherwise than before.

    `accounts` is the caller's, and is kept up here: at most `limit` of them, but for those at work.
    Of the others one without trouble goes first (only who earns is forgotten with it), one that is
    paused last, and among the same the one not asked for the longest.
    """

    def __init__(
        self,
        make: Callable[[Account], Line],
        accounts: dict[str, Account],
        *,
        queue: int,
        changed: AccountChanged,
        limit: int = MOST_ACCOUNTS,
    ) -> None:
        self._make = make
        self._accounts = accounts
        self._queue = queue
        self._changed = changed
        self._limit = limit
        self._lines: dict[str, Line] = {}

    def of(self, name: str) -> Line:
        """The line of an account, made at its first use."""
        account = self._accounts.pop(name, None)
        if account is None:
            self._make_room()
            account = Account(name, self._changed)
        self._accounts[name] = account  # the last place: the most recently used
        line = self._lines.get(name)
        if line is None:
            line = self._lines[name] = self._make(account)
        return line

    def states(self) -> dict[str, AccountState]:
        """Return how each account stands that is listed, by the name to show."""
        return {
            account.shown: account.state for account in self._accounts.values() if account.is_listed
        }

    def submits_waiting(self) -> int:
        """How many submits wait, over all accounts."""
        return sum(line.submits_waiting() for line in self._lines.values())

    def check_room(self) -> None:
        """Raise `Unavailable` when as many submits wait as may."""
        if self.submits_waiting() >= self._queue:
            raise Unavailable(
                f"{self._queue} submits are waiting already (browser.queue); try again shortly",
                retry_after=5,
            )

    def clear_all(self) -> int:
        """End every pause; returns how many accounts had one or had lost their session."""
        return sum(account.clear() for account in self._accounts.values())

    def _make_room(self) -> None:
        surplus = len(self._accounts) + 1 - self._limit
        if surplus <= 0:
            return
        at_rest = [
            name for name in self._accounts if name not in self._lines or not self._lines[name].busy
        ]
        # A stable sort: among those with the same to lose the longest unused is first.
        at_rest.sort(key=lambda name: self._accounts[name].to_remember)
        for name in at_rest[:surplus]:
            del self._accounts[name]
            self._lines.pop(name, None)
