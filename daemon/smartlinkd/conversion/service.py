"""The conversion service: links in, results out (`POST /api/convert`).

The links of a request are parsed and short ones resolved. Each product that is not cached joins its
account's queue, and product data is read for what was converted. Each link has a task of its own,
so a slow one holds up no other for long. The request is answered when the last link is done or its
deadline has passed. No converted link is lost: see `request.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import trio
from prometheus_client import Counter, Histogram

from smartlinkd.conversion.account import (
    MAX_ACCOUNTS,
    Account,
    AccountChanged,
    AccountState,
    digest_of,
    shown_name,
)
from smartlinkd.conversion.account_queue import AccountQueue, AccountQueues
from smartlinkd.conversion.cache import SingleFlight, TTLCache
from smartlinkd.conversion.limits import ConversionLimits
from smartlinkd.conversion.pause_store import Pause
from smartlinkd.conversion.product_data import ProductReader
from smartlinkd.conversion.request import (
    ConversionRequest,
    NoCookie,
    RequestProgress,
    fail_code_of,
    parse_links,
    still_queued,
)
from smartlinkd.conversion.schemas import (
    FailureEntry,
    LinkResult,
    SuccessEntry,
)
from smartlinkd.conversion.sources import (
    READS_AT_ONCE,
    LinkSource,
    MaySend,
    ProductSource,
    SubIds,
)
from smartlinkd.errors import Refused, Unavailable
from smartlinkd.logs import LogEvent
from smartlinkd.marketplace.answers import FailCode, Row
from smartlinkd.marketplace.links import NotALink, Product, Short
from smartlinkd.marketplace.markets import Market
from smartlinkd.marketplace.shortlinks import Unresolved
from smartlinkd.metrics import histogram, timed
from smartlinkd.supervision.actor import Mailbox
from smartlinkd.vault.cookie import Cookie

logger = logging.getLogger(__name__)

_OTHER_CALLS = 8
"""Calls that run beside the requests: a service full of requests still takes a cookie or a clear,
and reports its status."""

_NO_COOKIE = "open api"
"""The queue of work without a cookie: links of the Open API, and product data of an API."""


@dataclass(frozen=True)
class ConversionStatus:
    """Counts and account states for people and monitors."""

    requests_under_way: int
    waiting_submits: int
    remembered_links: int
    remembered_products: int
    accounts: dict[str, AccountState]


def ignore(*_: object) -> None:
    """Do nothing: the callback of a setup without one."""


@dataclass(frozen=True)
class ConversionSetup:
    """The sources of the service, its bounds and its callbacks. No callback may wait."""

    market: Market
    links: LinkSource
    products: ProductSource | None
    """None if no product data is wanted."""
    resolve: Callable[[Short], Awaitable[Product | NotALink | Unresolved]]
    """Follows a short link."""
    limits: ConversionLimits
    pauses: Sequence[Pause] = ()
    """The pauses of earlier processes."""
    keep_pauses: Callable[[Sequence[Pause]], None] = ignore
    """Called with all current pauses."""
    on_account_changed: Callable[[str, AccountState], None] = ignore
    """Called with an account's shown name and its new state."""
    on_account_replaced: Callable[[str, str], None] = ignore
    """Called with the shown names of the account of the cookie before, and of the new one."""
    on_cookie_missing: Callable[[bool], None] = ignore
    """Called with True if links are wanted and no cookie is stored, with False when one is."""
    on_converted: Callable[[ConversionRequest, Mapping[str, LinkResult]], None] = ignore
    """Called with each request that was answered, and its results."""


class ConversionTimings:
    """Durations for `/metrics`: of a link's wait, a submit, and the read of a product's data."""

    def __init__(self) -> None:
        self.wait = histogram(
            "submit_wait", "A link's time in the queue, whether or not it was submitted", "outcome"
        )
        self.submit = histogram("submit", "A submit at the portal, or at the API", "outcome")
        self.products = histogram("product_data", "Reading the data of a product", "outcome")

    def __iter__(self) -> Iterator[Histogram]:
        return iter((self.wait, self.submit, self.products))


class ConversionService:
    """The handle of the conversion actor."""

    def __init__(self, setup: ConversionSetup) -> None:
        max_requests = setup.limits.max_requests
        self.mailbox = Mailbox[_ConversionService]("conversion", size=max_requests)
        self.timings = ConversionTimings()
        self.answered = Counter(
            "smartlinkd_links",
            "Links answered, by failCode, those of refused requests included",
            ["code"],
            registry=None,
        )
        """Links by failCode, 0 for a converted one; for `/metrics`."""
        # Cookies whose tabs have shown a human check. They wait while the actor restarts.
        self._send_check, self._checks = trio.open_memory_channel[Cookie](MAX_ACCOUNTS)
        self.needs_cookie = setup.links.needs_cookie
        self.market = setup.market
        self._setup = setup
        # None until links are wanted in vain, or a cookie is stored.
        self._has_cookie: bool | None = None
        self._accounts = {
            pause.account: Account(pause.account, self._account_changed, pause)
            for pause in setup.pauses
        }

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """Run one instance. The accounts outlive it, the cached links do not."""
        async with trio.open_nursery() as nursery:
            service = _ConversionService(
                self._setup, self._accounts, self._account_changed, self.timings, nursery
            )
            nursery.start_soon(self._take_checks, service)
            task_status.started()
            at_once = self._setup.limits.max_requests + _OTHER_CALLS
            await self.mailbox.serve(service, at_once=at_once)

    async def convert(self, request: ConversionRequest) -> dict[str, LinkResult]:
        """Convert the request's links. Returns a result for each of them.

        Raises:
            NoCookie: there is no cookie.
            UpstreamFailed: no link was made, and the links are not to blame.
            Unavailable: the same, as too much waits or a part of the daemon is starting.
            Refused: one of `TRANSIENT`, with `fail_on_transient_error`, even if links were made.
        """
        try:
            results = await self._convert(request)
        except Refused as refusal:
            if not request.is_repeated_after(refusal):
                self.answered.labels(fail_code_of(refusal)).inc(len(request.links))
            raise
        for result in results.values():
            self.answered.labels(result.fail_code).inc()
        self._setup.on_converted(request, results)
        return results

    async def _convert(self, request: ConversionRequest) -> dict[str, LinkResult]:
        if request.cookie is None and self.needs_cookie:
            self._report_missing_cookie()
            raise NoCookie("cookie: none given and none stored; send one or sync one first")
        deadline = trio.current_time() + self._setup.limits.timeout_s
        # The actor keeps the deadline itself, and answers with what it has by then. The second more
        # is for an actor that is being restarted.
        with trio.move_on_at(deadline + 1):
            return await self.mailbox.ask(_ConversionService.convert, request, deadline)
        raise still_queued()

    async def note_synced_cookie(
        self, cookie: Cookie, before: Cookie | None, *, keep_pause: bool = False
    ) -> bool:
        """Note that a cookie was stored. Returns True if its account is paused now.

        A new cookie ends all trouble of its account, but with `keep_pause` no pause.

        Args:
            before: the cookie that was stored until then.
        """
        if self._has_cookie is False:
            logger.warning("there is a cookie again", extra=LogEvent.COOKIE_BACK())
            self._setup.on_cookie_missing(False)
        self._has_cookie = True
        if before is not None and before.account != cookie.account:
            old, new = shown_name(before.account), shown_name(cookie.account)
            text = "the stored cookie is another account's now: %s, which was %s"
            logger.warning(text, new, old, extra=LogEvent.ACCOUNT_REPLACED(account=new))
            self._setup.on_account_replaced(old, new)
        synced = _ConversionService.note_synced_cookie
        return await self.mailbox.ask(synced, cookie, before, keep_pause=keep_pause)

    def _report_missing_cookie(self) -> None:
        """Report that links are wanted, and that no cookie is stored to make them with.

        The owner is told with the first report. A stored cookie is only ever replaced, so a request
        that missed it looked before it was stored, and tells nobody.
        """
        if self._has_cookie is None:
            self._has_cookie = False
            text = "links are wanted, and no cookie is stored to make them with: sync one"
            logger.warning(text, extra=LogEvent.COOKIE_MISSING())
            self._setup.on_cookie_missing(True)

    def report_human_check(self, cookie: Cookie) -> None:
        """Report that a tab of this cookie shows a human check. Never waits.

        Without this, a check in a tab that no job uses would be forgotten when the tab is closed.
        """
        with suppress(trio.WouldBlock):  # as many wait as there may be accounts
            self._send_check.send_nowait(cookie)

    async def clear_accounts(self) -> int:
        """End all trouble. Returns how many accounts were paused or had lost their session."""
        return await self.mailbox.ask(_ConversionService.clear_accounts)

    async def status(self) -> ConversionStatus:
        """Return how much waits and is cached, and the states of the accounts."""
        return await self.mailbox.ask(_ConversionService.status)

    async def _take_checks(self, service: _ConversionService) -> None:
        async for cookie in self._checks:
            service.pause(cookie)

    def _account_changed(self, account: Account) -> None:
        self._setup.on_account_changed(account.shown, account.state)
        pauses = (each.current_pause for each in self._accounts.values())
        self._setup.keep_pauses([pause for pause in pauses if pause is not None])


class _ConversionService:
    """The state of one instance. The actor's tasks alone touch it."""

    def __init__(
        self,
        setup: ConversionSetup,
        accounts: dict[str, Account],
        on_change: AccountChanged,
        timings: ConversionTimings,
        nursery: trio.Nursery,
    ) -> None:
        self._timings = timings
        self._market = setup.market
        self._links = setup.links
        self._follow = setup.resolve
        self._limits = limits = setup.limits
        make_queue = partial(
            AccountQueue,
            self._submit,
            limits=limits,
            max_reads=setup.products.at_once if setup.products else READS_AT_ONCE,
            nursery=nursery,
            wait_times=timings.wait,
        )
        self._queues = AccountQueues(make_queue, accounts, limits, on_change)
        # The work itself caches its result, not a task that waits for it: that may leave, and
        # somebody else may ask for the same before it wakes.
        self._rows = TTLCache[tuple[str | None, Product, SubIds], Row](
            ttl_s=limits.ttl_s, max_size=limits.max_cached
        )
        self._resolved = TTLCache[str, Product](ttl_s=limits.ttl_s, max_size=limits.max_cached)
        self._resolving = SingleFlight[str, Product | NotALink | Unresolved](nursery)
        self._products = ProductReader(
            setup.products, self._queue, limits, nursery, timings.products
        )
        self._under_way = 0

    async def convert(self, request: ConversionRequest, deadline: float) -> dict[str, LinkResult]:
        max_requests = self._limits.max_requests
        if self._under_way >= max_requests:
            raise Unavailable(
                f"{max_requests} requests are being converted already; try again shortly",
                retry_after=5,
            )
        if trio.current_time() >= deadline:  # it waited for this instance
            raise still_queued()
        self._under_way += 1
        try:
            parsed = await parse_links(request.links, self._market)
            progress = RequestProgress(request, parsed)
            with trio.move_on_at(deadline):
                async with trio.open_nursery() as nursery:
                    for link in request.links:
                        nursery.start_soon(self._convert_link, progress, link)
                    if progress.unresolved:
                        with trio.move_on_after(self._limits.gather_s):
                            await progress.may_queue.wait()
                    progress.may_queue.set()
        finally:
            self._under_way -= 1
        return progress.finish()

    async def note_synced_cookie(
        self, cookie: Cookie, before: Cookie | None, *, keep_pause: bool
    ) -> bool:
        account = self._queue(cookie).account
        account.note_synced_cookie(cookie, before, keep_pause=keep_pause)
        if before is not None and before.account != cookie.account:
            old = self._queue(before).account
            if before.account == before.digest:  # without a user id it ends with its cookie
                old.note_synced_cookie(cookie, before, keep_pause=keep_pause)
            old.mark_replaced()
        return account.is_paused

    def pause(self, cookie: Cookie) -> None:
        queue = self._queue(cookie)
        if queue.account.is_superseded(cookie):
            # An old tab says nothing about the account: the owner may have answered the check. A
            # submit in that tab meets the check itself.
            shown = queue.account.shown
            logger.info("account %s: a tab of a cookie that was replaced shows a check", shown)
        else:
            queue.pause(cookie)

    async def clear_accounts(self) -> int:
        self._products.resume()
        return self._queues.clear_all()

    async def status(self) -> ConversionStatus:
        return ConversionStatus(
            requests_under_way=self._under_way,
            waiting_submits=self._queues.count_waiting_submits(),
            remembered_links=len(self._rows),
            remembered_products=len(self._products.cached),
            accounts=self._queues.states(),
        )

    async def _convert_link(self, progress: RequestProgress, link: str) -> None:
        try:
            parsed = progress.parsed[link]
            found = await self._resolve(progress, parsed) if isinstance(parsed, Short) else parsed
            if not isinstance(found, Product):
                is_none = isinstance(found, NotALink)
                code = FailCode.INVALID_LINK if is_none else FailCode.UNKNOWN
                progress.results[link] = FailureEntry(fail_code=code)
                return
            await progress.may_queue.wait()
            row = await self._row(progress, found)
            if row.short_link is None:
                progress.results[link] = FailureEntry(fail_code=row.fail_code or FailCode.UNKNOWN)
                return
            # From here on it is converted, even if the deadline passes meanwhile.
            entry = progress.results[link] = SuccessEntry(
                short_link=row.short_link, long_link=row.long_link or row.short_link, product=None
            )
            entry.product = await self._products.read(progress.request.cookie, found)
        except Refused as refusal:
            progress.refusals[link] = refusal

    async def _resolve(
        self, progress: RequestProgress, short: Short
    ) -> Product | NotALink | Unresolved:
        try:
            cached = self._resolved.get(short.url)
            if cached is not None:
                return cached
            self._queue(self._cookie_of(progress)).check_not_paused()
            return await self._resolving.run(short.url, partial(self._follow_short, short))
        finally:
            progress.note_resolved()

    async def _follow_short(self, short: Short) -> Product | NotALink | Unresolved:
        found = await self._follow(short)
        if isinstance(found, Product):
            self._resolved.put(short.url, found)
        else:
            logger.info("short link %s: %s", short.url, found.why)
        return found

    async def _row(self, progress: RequestProgress, product: Product) -> Row:
        cookie, sub_ids = self._cookie_of(progress), progress.request.sub_ids
        cached = self._rows.get((digest_of(cookie), product, sub_ids))
        if cached is not None:
            return cached
        if not progress.queued:  # once one product of a request is in, all get in
            self._queues.check_room()
        queue = self._queue(cookie)
        pending = queue.enqueue(cookie, product, sub_ids)
        progress.queued.append(pending)
        return await queue.wait_for_row(pending)

    async def _submit(
        self, cookie: Cookie | None, products: Sequence[Product], sub_ids: SubIds, may_send: MaySend
    ) -> Sequence[Row]:
        with timed(self._timings.submit):
            made = await self._links.create(cookie, products, sub_ids, may_send)
        rows = self._queue(cookie).account.affiliate_ids.reject_foreign(made, cookie)
        for product, row in zip(products, rows, strict=True):
            if row.short_link is not None:
                self._rows.put((digest_of(cookie), product, sub_ids), row)
        return rows

    def _cookie_of(self, progress: RequestProgress) -> Cookie | None:
        """Return the cookie that the request's links are made with."""
        return progress.request.cookie if self._links.needs_cookie else None

    def _queue(self, cookie: Cookie | None) -> AccountQueue:
        return self._queues.get(cookie.account if cookie else _NO_COOKIE)
