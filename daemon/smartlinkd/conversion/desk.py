"""The conversion desk: links in, entries out (seed, POST /api/convert).

A request's way: its links are read; short ones are resolved; each product that is not remembered
takes a ticket in its account's line; product data is read for what was converted. Each link goes
that way in a task of its own, so that a slow short link holds up nobody else, and the request is
answered when the last one has arrived or its deadline has passed.

What was converted is never lost: a request fails as a whole only when it has no link to show.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import trio
from prometheus_client import Counter, Histogram

from smartlinkd.conversion.account import Account, AccountChanged, AccountState, shown_name
from smartlinkd.conversion.line import Line, Lines
from smartlinkd.conversion.missing import MissingCookie, TellMissing
from smartlinkd.conversion.order import (
    Converted,
    Entry,
    Failed,
    OpenOrder,
    Order,
    code_for,
    still_queued,
)
from smartlinkd.conversion.pauses import Pause
from smartlinkd.conversion.product_data import ProductReader
from smartlinkd.conversion.sharing import Remembered, Shared, whose
from smartlinkd.conversion.sightings import Sightings
from smartlinkd.conversion.sources import (
    READS_AT_ONCE,
    LinkSource,
    MaySend,
    ProductSource,
    Resolver,
    SubIds,
)
from smartlinkd.errors import Invalid, Refused, Unavailable
from smartlinkd.logs import LogEvent
from smartlinkd.marketplace.answers import Row
from smartlinkd.marketplace.codes import FailCode
from smartlinkd.marketplace.errors import HumanCheck
from smartlinkd.marketplace.links import NotALink, Product, Short
from smartlinkd.marketplace.markets import Market
from smartlinkd.metrics import histogram, timed
from smartlinkd.supervision.actor import Mailbox
from smartlinkd.vault.cookie import Cookie

logger = logging.getLogger(__name__)

AT_ONCE = 256
"""Requests being worked on at the same time; one more is refused."""

QUESTIONS = 8
"""Hands kept free beside those: a desk full of requests still takes a cookie, a clear, a look."""

GATHER = 0.5
"""Seconds that a request's products wait for its short links, so that all share their submits."""

TellReplaced = Callable[[str, str], None]
"""Called with the shown names of the account whose cookie was stored, and of the new one."""

TellAccount = Callable[[str, AccountState], None]
"""Called with an account's shown name and its new standing."""

TellConverted = Callable[[Order, Mapping[str, Entry]], None]
"""Called with each order that was answered, and its answer. It returns at once."""

KeepPauses = Callable[[Sequence[Pause]], None]
"""Called with all pauses that there are now."""

OWN_ACCOUNT = "open api"
"""The line of links that are made without a cookie: there is one such account, the owner's."""


@dataclass(frozen=True)
class DeskLimits:
    """The desk's bounds: seconds, numbers of links, numbers of remembered results."""

    patience: float  # for a request, waiting included
    chunk: int
    queue: int
    remember: float
    remember_limit: int
    products_remember: float
    products_remember_limit: int
    products_pause: float  # after product data was refused


@dataclass(frozen=True)
class DeskStatus:
    """For people and monitors."""

    waiting_requests: int
    waiting_submits: int
    remembered_links: int
    remembered_products: int
    accounts: dict[str, AccountState]


@dataclass(frozen=True)
class DeskSetup:
    """What the desk works with. Without `products` no product data is read. `account_changed` is
    told of every account's trouble, and of its end, `account_replaced` when a cookie of another
    account is stored, `cookie_missing` of orders that are refused because none is stored, and
    `converted` of orders that are answered. `paused` are the pauses that were there before this
    process, and `keep` keeps them for the next one. `sightings` are the human checks that come by
    themselves."""

    market: Market
    links: LinkSource
    products: ProductSource | None
    resolver: Resolver
    limits: DeskLimits
    account_changed: TellAccount | None = None
    account_replaced: TellReplaced | None = None
    cookie_missing: TellMissing | None = None
    converted: TellConverted | None = None
    paused: Sequence[Pause] = ()
    keep: KeepPauses | None = None
    sightings: Sightings = field(default_factory=Sightings)


class Timings:
    """How long a link waits, a submit takes, and a product's data is on its way; for `/metrics`."""

    def __init__(self) -> None:
        self.wait = histogram(
            "submit_wait", "A link's time in the line, until its submit or without one", "outcome"
        )
        self.submit = histogram("submit", "A submit at the portal, or at the API", "outcome")
        self.products = histogram("product_data", "Reading the data of a product", "outcome")

    def __iter__(self) -> Iterator[Histogram]:
        return iter((self.wait, self.submit, self.products))

    def waited(self, seconds: float, outcome: str) -> None:
        """A link has stood in the line for so long."""
        self.wait.labels(outcome).observe(seconds)


class Desk:
    """What others hold: ask it to convert an order."""

    def __init__(self, setup: DeskSetup) -> None:
        self.mailbox = Mailbox[_Desk]("conversion", size=AT_ONCE)
        self.timings = Timings()
        # 0 is one that was made; for `/metrics`.
        self.answered = Counter(
            "smartlinkd_links",
            "Links answered, by failCode, those of refused orders included",
            ["code"],
            registry=None,
        )
        self.needs_cookie = setup.links.needs_cookie
        self.market = setup.market
        self._setup = setup
        self._missing = MissingCookie(setup.cookie_missing)
        # How they stand; bounded by `Lines`.
        self._accounts = {
            pause.account: Account.from_earlier_process(pause, self._account_changed)
            for pause in setup.paused
        }

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """One instance. What it remembers goes with it, but not how the accounts stand."""
        async with trio.open_nursery() as nursery:
            desk = _Desk(self._setup, self._accounts, self._account_changed, self.timings, nursery)
            nursery.start_soon(self._setup.sightings.hear, desk.pause)
            task_status.started()
            await self.mailbox.serve(desk, at_once=AT_ONCE + QUESTIONS)

    async def convert(self, order: Order) -> dict[str, Entry]:
        """An entry for each of the order's links.

        Raises `Refused` when no link was made and the links are not to blame: `SessionLost`,
        `HumanCheck` or another `UpstreamFailed`; `Unavailable` when the work did not begin in time.
        """
        try:
            entries = await self._converted(order)
        except Refused as refusal:
            if not order.is_asked_again_after(refusal):
                self.answered.labels(code_for(refusal)).inc(len(order.links))
            raise
        for entry in entries.values():
            code = 0 if isinstance(entry, Converted) else entry.fail_code
            self.answered.labels(code).inc()
        if self._setup.converted is not None:
            self._setup.converted(order, entries)
        return entries

    async def _converted(self, order: Order) -> dict[str, Entry]:
        if order.cookie is None and self.needs_cookie:
            self.cookie_is_missing()
            raise Invalid("cookie: none given and none stored; send one or sync one first")
        deadline = trio.current_time() + self._setup.limits.patience
        # The desk itself keeps the deadline, to answer with what it has by then; the second more
        # is for when it does not come to that, because it is being restarted.
        with trio.move_on_at(deadline + 1):
            return await self.mailbox.ask(_Desk.convert, order, deadline)
        raise still_queued()

    async def cookie_synced(
        self, cookie: Cookie, before: Cookie | None, *, keep_pause: bool = False
    ) -> bool:
        """Note that a cookie was stored in the place of another one, or of none.

        With a new one, its account's trouble is over; but with `keep_pause` a pause goes on.
        Returns True if the account is paused now.
        """
        self._missing.synced()
        if before is not None and before.account != cookie.account:
            old, new = shown_name(before.account), shown_name(cookie.account)
            text = "the stored cookie is another account's now: %s, which was %s"
            logger.warning(text, new, old, extra=LogEvent.ACCOUNT_REPLACED(account=new))
            if self._setup.account_replaced is not None:
                self._setup.account_replaced(old, new)
        return await self.mailbox.ask(_Desk.cookie_synced, cookie, before, keep_pause=keep_pause)

    def cookie_is_missing(self) -> None:
        """Links are wanted, and whoever was asked for them has found no cookie stored."""
        self._missing.noticed()

    async def clear_accounts(self) -> int:
        """The owner says that all is well again; returns how many accounts had been stopped."""
        return await self.mailbox.ask(_Desk.clear_accounts)

    async def status(self) -> DeskStatus:
        """How much waits and is remembered, and how the accounts stand."""
        return await self.mailbox.ask(_Desk.status)

    def _account_changed(self, account: Account) -> None:
        if self._setup.account_changed is not None:
            self._setup.account_changed(account.shown, account.state)
        if self._setup.keep is not None:
            pauses = (each.pause_to_keep for each in self._accounts.values())
            self._setup.keep([pause for pause in pauses if pause is not None])


class _Desk:
    def __init__(
        self,
        setup: DeskSetup,
        accounts: dict[str, Account],
        changed: AccountChanged,
        timings: Timings,
        nursery: trio.Nursery,
    ) -> None:
        self._timings = timings
        self._market = setup.market
        self._links = setup.links
        self._resolver = setup.resolver
        limits = setup.limits
        make_line = partial(
            Line,
            self._submit,
            chunk=limits.chunk,
            nursery=nursery,
            waited=timings.waited,
            reads=setup.products.at_once if setup.products else READS_AT_ONCE,
        )
        self._lines = Lines(make_line, accounts, queue=limits.queue, changed=changed)
        # What work finds is remembered by the work itself and not by those who wait for it: they
        # may leave, and between its end and their waking somebody else may ask for the same.
        self._rows = Remembered[tuple[str, Product, SubIds], Row](
            seconds=limits.remember, limit=limits.remember_limit
        )
        self._resolved = Remembered[str, Product](
            seconds=limits.remember, limit=limits.remember_limit
        )
        self._resolving = Shared[str, Product | int](nursery)
        self._products = ProductReader(
            setup.products,
            self._line,
            Remembered(seconds=limits.products_remember, limit=limits.products_remember_limit),
            nursery,
            rest=limits.products_pause,
            seconds=timings.products,
        )
        self._waiting = 0
        self._last_number = 0  # of a request

    async def convert(self, order: Order, deadline: float) -> dict[str, Entry]:
        if self._waiting >= AT_ONCE:
            raise Unavailable(
                f"{AT_ONCE} requests are being converted already; try again shortly", retry_after=5
            )
        if trio.current_time() >= deadline:  # it waited for the desk to be there again
            raise still_queued()
        self._last_number += 1
        work = OpenOrder(order, self._market, self._last_number, deadline)
        self._waiting += 1
        try:
            with trio.move_on_at(deadline):
                async with trio.open_nursery() as nursery:
                    for link in work.readings:
                        nursery.start_soon(self._convert_link, work, link)
                    await self._gather(work)
        finally:
            self._waiting -= 1
        return work.answer()

    async def cookie_synced(
        self, cookie: Cookie, before: Cookie | None, *, keep_pause: bool
    ) -> bool:
        account = self._lines.of(cookie.account).account
        account.cookie_synced(cookie, before, keep_pause=keep_pause)
        if before is not None and before.account != cookie.account:
            left = self._lines.of(before.account).account
            if before.account == before.digest:  # without a user id it ends with its cookie
                left.cookie_synced(cookie, before, keep_pause=keep_pause)
            left.other_account_synced()
        return account.human_check is not None

    def pause(self, cookie: Cookie) -> None:
        """The portal has shown a human check to a tab of this cookie's."""
        line = self._line(cookie)
        if line.account.does_without(cookie) and not line.uses(cookie):
            shown = line.account.shown
            logger.info("account %s: a tab of a cookie that was replaced shows a check", shown)
            return
        line.pause(HumanCheck(), cookie)

    async def clear_accounts(self) -> int:
        return self._lines.clear_all()

    async def status(self) -> DeskStatus:
        return DeskStatus(
            waiting_requests=self._waiting,
            waiting_submits=self._lines.submits_waiting(),
            remembered_links=len(self._rows),
            remembered_products=len(self._products.remembered),
            accounts=self._lines.states(),
        )

    # One link's way

    async def _convert_link(self, work: OpenOrder, link: str) -> None:
        try:
            product = await self._identify(work, work.readings[link])
            if isinstance(product, int):
                work.entries[link] = Failed(product)
                return
            row = await self._row(work, product, link)
            if row.short_link is None:
                work.entries[link] = Failed(row.fail_code or FailCode.UNKNOWN)
                return
            entry = Converted(row.short_link, row.long_link or row.short_link, None)
            work.entries[link] = entry  # from here on it is converted, whatever comes
            data = await self._products.data(work.order.cookie, product)
            work.entries[link] = Converted(entry.short_link, entry.long_link, data)
        except Refused as refusal:
            work.refusals[link] = refusal

    async def _identify(
        self, work: OpenOrder, reading: Product | Short | NotALink
    ) -> Product | int:
        """The product behind a link, or the failCode that says that there is none."""
        if isinstance(reading, NotALink):
            return FailCode.INVALID_LINK
        product = reading if isinstance(reading, Product) else await self._resolve(work, reading)
        await work.gathered.wait()
        return product

    async def _resolve(self, work: OpenOrder, short: Short) -> Product | int:
        try:
            remembered = self._resolved.get(short.url)
            if remembered is not None:
                return remembered
            self._line(self._own_cookie(work)).check_not_paused()
            return await self._resolving.get(short.url, partial(self._follow, short))
        finally:
            work.note_resolved()

    async def _follow(self, short: Short) -> Product | int:
        product = await self._resolver.resolve(short)
        if isinstance(product, Product):
            self._resolved.put(short.url, product)
        return product

    async def _gather(self, work: OpenOrder) -> None:
        """Let the products go on when the short links among the order are resolved, or too slow."""
        if work.unresolved:
            with trio.move_on_after(GATHER):
                await work.gathered.wait()
        work.gathered.set()

    async def _row(self, work: OpenOrder, product: Product, link: str) -> Row:
        cookie = self._own_cookie(work)
        sub_ids = work.order.sub_ids
        remembered = self._rows.get((whose(cookie), product, sub_ids))
        if remembered is not None:
            return remembered
        if not work.tickets:  # all of a request's products get in, or none
            self._lines.check_room()
        line = self._line(cookie)
        ticket = line.ticket(cookie, product, sub_ids, work.ranks[link], work.deadline)
        work.tickets.append(ticket)
        return await line.row(ticket)

    async def _submit(
        self, cookie: Cookie | None, products: Sequence[Product], sub_ids: SubIds, may_send: MaySend
    ) -> Sequence[Row]:
        with timed(self._timings.submit):
            made = await self._links.create(cookie, products, sub_ids, may_send)
        rows = self._line(cookie).account.earners.own(made, cookie)
        for product, row in zip(products, rows, strict=True):
            if row.short_link is not None:
                self._rows.put((whose(cookie), product, sub_ids), row)
        return rows

    def _own_cookie(self, work: OpenOrder) -> Cookie | None:
        """The cookie by which the order's links are made."""
        return work.order.cookie if self._links.needs_cookie else None

    def _line(self, cookie: Cookie | None) -> Line:
        return self._lines.of(cookie.account if cookie else OWN_ACCOUNT)
