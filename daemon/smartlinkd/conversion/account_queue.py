"""One account's queue of links, submitted in batches: one at a time, none while it is paused.

The portal's page takes a few links at once, with one set of sub-ids. So each account has at most
one worker task, which submits as many waiting links as fit together. The first link is submitted at
once: only links that have to wait anyway are merged. A log record of a submit has the ids of all
requests whose links it holds. A *submit* is one use of the portal's form, a *row* its answer for
one link.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from typing import TypeVar

import trio
from prometheus_client import Histogram

from smartlinkd.conversion.account import (
    MAX_ACCOUNTS,
    Account,
    AccountChanged,
    AccountState,
    digest_of,
)
from smartlinkd.conversion.cache import SharedResult
from smartlinkd.conversion.limits import ConversionLimits
from smartlinkd.conversion.sources import MaySend, SubIds
from smartlinkd.errors import Refused, Unavailable
from smartlinkd.logs import LogContextSet, bind_log_contexts
from smartlinkd.marketplace.answers import Row
from smartlinkd.marketplace.errors import HumanCheck, SessionLost
from smartlinkd.marketplace.links import Product
from smartlinkd.metrics import DONE, LEFT
from smartlinkd.vault.cookie import Cookie

logger = logging.getLogger(__name__)

T = TypeVar("T")
Submit = Callable[[Cookie | None, Sequence[Product], SubIds, MaySend], Awaitable[Sequence[Row]]]


@dataclass(eq=False)
class PendingLink:
    """A link that waits for its row. Requests with the same cookie and sub-ids share it."""

    cookie: Cookie | None
    product: Product
    sub_ids: SubIds
    since: float = field(default_factory=trio.current_time)
    result: SharedResult[Row] = field(default_factory=SharedResult)
    batch: _Batch | None = None

    def __post_init__(self) -> None:
        self.batch_key = (digest_of(self.cookie), self.sub_ids)
        """Links with equal keys fit into one submit."""
        self.key = (self.batch_key, self.product)

    @property
    def is_submitted(self) -> bool:
        """True once its submit has gone upstream."""
        return self.batch is not None and self.batch.is_sent


@dataclass(eq=False)
class _Batch:
    """The links of the submit that runs. It is cancelled when nobody waits for any of them."""

    links: list[PendingLink]
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    is_sent: bool = False


class AccountQueue:
    """The pending links of one account, and the worker that submits them."""

    def __init__(
        self,
        submit: Submit,
        account: Account,
        *,
        limits: ConversionLimits,
        max_reads: int,
        nursery: trio.Nursery,
        wait_times: Histogram,
    ) -> None:
        """Make an empty queue.

        Args:
            max_reads: products that are read at the same time, at most.
            nursery: the worker runs in it.
            wait_times: observes how long links wait, by how the wait ended: `DONE`, `LEFT` or the
                kind of the refusal.
        """
        self.account = account
        self._submit = submit
        self._chunk = limits.chunk
        self._nursery = nursery
        self._wait_times = wait_times
        self._pending: dict[object, PendingLink] = {}  # waiting or being submitted
        self._waiting: list[PendingLink] = []
        self._is_working = False
        self._reads: set[trio.CancelScope] = set()
        self._read_slots = trio.Semaphore(max_reads)

    @property
    def is_busy(self) -> bool:
        """True while a submit runs or is due, or a product is read."""
        return self._is_working or bool(self._reads)

    def count_waiting_submits(self) -> int:
        """Return how many submits the waiting links take."""
        sizes = Counter(pending.batch_key for pending in self._waiting)
        return sum(ceil(size / self._chunk) for size in sizes.values())

    def check_not_paused(self) -> None:
        """Raise `HumanCheck` while the account is paused."""
        if self.account.is_paused:
            raise HumanCheck

    def enqueue(self, cookie: Cookie | None, product: Product, sub_ids: SubIds) -> PendingLink:
        """Add a link, or join the same link that is pending. The caller awaits `wait_for_row`.

        Raises `HumanCheck` while the account is paused.
        """
        self.check_not_paused()
        self.account.mark_used()
        new = PendingLink(cookie, product, sub_ids)
        pending = self._pending.setdefault(new.key, new)
        if pending is new:
            self._waiting.append(pending)
        if not self._is_working:
            self._is_working = True
            self._nursery.start_soon(self._work)
        pending.result.join()
        return pending

    async def wait_for_row(self, pending: PendingLink) -> Row:
        """Wait for the link's row. Raises the `Refused` that ended its submit or its wait.

        A link whose last waiter leaves is removed from the queue, or from its submit.
        """
        return await pending.result.wait(partial(self._remove, pending))

    def pause(self, cookie: Cookie | None) -> None:
        """Pause the account, refuse all waiting links, and end the reads of product data.

        A submit that is at the portal already keeps its result.
        """
        self.account.pause(cookie)
        self._refuse(list(self._waiting), HumanCheck())
        self.end_reads()

    def end_reads(self) -> None:
        """End all reads of product data. Each returns None."""
        for scope in self._reads:
            scope.cancel()

    async def read_product(self, read: Callable[[], Awaitable[T | None]]) -> T | None:
        """Return what `read` returns, or None if the account is paused or the read is ended.

        Raises what `read` raises.
        """
        if self.account.is_paused:
            return None
        with trio.CancelScope() as scope:
            self._reads.add(scope)
            try:
                async with self._read_slots:
                    return await read()
            finally:
                self._reads.remove(scope)
        return None

    async def _work(self) -> None:
        try:
            while self._waiting:
                await self._run(self._next_batch())
        finally:
            self._is_working = False

    def _next_batch(self) -> _Batch:
        batch_key = self._waiting[0].batch_key
        fitting = [pending for pending in self._waiting if pending.batch_key == batch_key]
        batch = _Batch(fitting[: self._chunk])
        for pending in batch.links:
            pending.batch = batch
            self._end_wait(pending, DONE)
        return batch

    async def _run(self, batch: _Batch) -> None:
        links = list(batch.links)  # of the batch itself they are removed when nobody waits
        first = links[0]
        contexts = LogContextSet(*(pending.result.log_contexts for pending in links))
        with batch.scope, bind_log_contexts(contexts):
            products = [pending.product for pending in links]
            may_send = partial(self._send, batch)
            try:
                rows = await self._submit(first.cookie, products, first.sub_ids, may_send)
            except Refused as refusal:
                self._batch_refused(batch, links, refusal)
            else:
                if any(row.short_link for row in rows):  # else the rows may tell of a refusal
                    self.account.note_links_made(first.cookie)
                for pending, row in zip(links, rows, strict=True):
                    self._forget(pending)
                    pending.result.succeed(row)

    def _send(self, batch: _Batch) -> None:
        batch.is_sent = not self.account.is_paused
        self.check_not_paused()

    def _batch_refused(self, batch: _Batch, links: list[PendingLink], refusal: Refused) -> None:
        shown, cookie = self.account.shown, links[0].cookie
        logger.warning("account %s: %d links were refused: %s", shown, len(links), refusal)
        for pending in links:
            self._forget(pending)
            pending.result.refuse(refusal)
        if isinstance(refusal, HumanCheck) and batch.is_sent:
            self.pause(cookie)
        elif isinstance(refusal, SessionLost):
            self.account.note_session_lost(refusal, cookie)
            self._refuse([each for each in self._waiting if each.cookie == cookie], refusal)

    def _refuse(self, links: list[PendingLink], refusal: Refused) -> None:
        for pending in links:
            self._end_wait(pending, type(refusal).__name__)
            self._forget(pending)
            pending.result.refuse(refusal)

    def _remove(self, pending: PendingLink) -> None:
        self._forget(pending)
        if pending.batch is None:
            self._end_wait(pending, LEFT)
            return
        pending.batch.links.remove(pending)
        if not pending.batch.links:
            pending.batch.scope.cancel()

    def _forget(self, pending: PendingLink) -> None:
        # A newer one may be in the place of one that all have left.
        if self._pending.get(pending.key) is pending:
            del self._pending[pending.key]

    def _end_wait(self, pending: PendingLink, outcome: str) -> None:
        self._waiting.remove(pending)
        self._wait_times.labels(outcome).observe(trio.current_time() - pending.since)


class AccountQueues:
    """The queues of all accounts, and the bound on the submits that wait in them.

    It keeps at most `MAX_ACCOUNTS`, unless more are paused or busy. The least recently used account
    is evicted first, a paused or busy one never.
    """

    def __init__(
        self,
        make: Callable[[Account], AccountQueue],
        accounts: dict[str, Account],
        limits: ConversionLimits,
        on_change: AccountChanged,
    ) -> None:
        """`accounts` belongs to the caller and is kept up to date. `make` makes a queue."""
        self._make = make
        self._accounts = accounts
        self._max_waiting = limits.max_waiting_submits
        self._on_change = on_change
        self._queues: dict[str, AccountQueue] = {}

    def get(self, name: str) -> AccountQueue:
        """Return the queue of an account, made at its first use."""
        account = self._accounts.pop(name, None)
        if account is None:
            self._evict(len(self._accounts) + 1 - MAX_ACCOUNTS)
            account = Account(name, self._on_change)
        self._accounts[name] = account  # at the end: the most recently used
        if name not in self._queues:
            self._queues[name] = self._make(account)
        return self._queues[name]

    def states(self) -> dict[str, AccountState]:
        """Return the states of the listed accounts, by their shown names."""
        return {
            account.shown: account.state for account in self._accounts.values() if account.is_listed
        }

    def count_waiting_submits(self) -> int:
        """Return how many submits wait, over all accounts."""
        return sum(queue.count_waiting_submits() for queue in self._queues.values())

    def check_room(self) -> None:
        """Raise `Unavailable` if as many submits wait as may."""
        if self.count_waiting_submits() >= self._max_waiting:
            raise Unavailable(
                f"{self._max_waiting} submits are waiting already (browser.queue); "
                "try again shortly",
                retry_after=5,
            )

    def clear_all(self) -> int:
        """End all trouble. Returns how many accounts were paused or had lost their session."""
        return sum(account.clear() for account in self._accounts.values())

    def _evict(self, count: int) -> None:
        idle = (
            name
            for name, account in self._accounts.items()
            if not account.is_paused and not (name in self._queues and self._queues[name].is_busy)
        )
        for name in list(idle)[: max(0, count)]:
            del self._accounts[name]
            self._queues.pop(name, None)
