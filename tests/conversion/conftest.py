"""Scripted portal, product source and resolver that record their calls, and a service between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Any, Generic, TypeVar

import pytest
import trio

from smartlinkd.conversion.account import Account
from smartlinkd.conversion.account_queue import AccountQueue, PendingLink, Submit
from smartlinkd.conversion.limits import ConversionLimits
from smartlinkd.conversion.pause_store import PauseStore
from smartlinkd.conversion.request import ConversionRequest
from smartlinkd.conversion.schemas import LinkResult, SuccessEntry
from smartlinkd.conversion.service import ConversionService, ConversionSetup, ConversionTimings
from smartlinkd.conversion.sources import READ_WITHIN, READS_AT_ONCE, MaySend
from smartlinkd.errors import Refused
from smartlinkd.marketplace.answers import FailCode, Row
from smartlinkd.marketplace.errors import PortalSilent
from smartlinkd.marketplace.links import NotALink, Product, Short
from smartlinkd.marketplace.markets import market
from smartlinkd.marketplace.products import ProductData
from smartlinkd.marketplace.shortlinks import Unresolved
from smartlinkd.vault.cookie import Cookie, parse_cookie

T = TypeVar("T")

ORDERS = 6

VN = market("vn")
COOKIE = parse_cookie("SPC_U=1001; SPC_EC=first")
RENEWED = parse_cookie("SPC_U=1001; SPC_EC=second")
SILENT = inf


def item(number: int) -> Product:
    """A product of the shop 7."""
    return Product(7, number)


def link(number: int) -> str:
    """Its link, as a client has it."""
    return f"https://shopee.vn/a-thing-i.7.{number}"


def short(code: str) -> str:
    """A short link, as a client has it and as it is resolved."""
    return f"https://s.shopee.vn/{code}"


def row_of(product: Product, sub_ids: tuple[str, ...] = (), cookie: Cookie | None = COOKIE) -> Row:
    """The row that is made for it: no other link has the same."""
    whose = cookie.digest[:8] if cookie else "none"
    name = "-".join([whose, str(product.item_id), *sub_ids])
    return Row(short(name), f"https://shopee.vn/universal-link/{name}", FailCode.SUCCESS)


def data_of(product: Product) -> ProductData:
    return ProductData(name=f"thing {product.item_id}", price=product.item_id)


def entry_of(
    number: int,
    sub_ids: tuple[str, ...] = (),
    cookie: Cookie | None = COOKIE,
    *,
    data: bool = True,
) -> SuccessEntry:
    """The entry of a link that was converted, with or without its product data."""
    row = row_of(item(number), sub_ids, cookie)
    assert row.short_link is not None
    assert row.long_link is not None
    return SuccessEntry(
        short_link=row.short_link,
        long_link=row.long_link,
        product=data_of(item(number)) if data else None,
    )


@dataclass(frozen=True)
class Submitted:
    """One call of `create`, and when it came."""

    cookie: Cookie | None
    products: tuple[Product, ...]
    sub_ids: tuple[str, ...]
    at: float

    @property
    def items(self) -> set[int]:
        return {product.item_id for product in self.products}


class FakeLinks:
    """Makes links, each submit in `seconds`.

    `script` says how the next submits go: a refusal is raised, rows are the answer, a number is how
    many seconds it takes.
    """

    def __init__(self) -> None:
        self.needs_cookie = True
        self.seconds = 1.0
        self.script: list[Refused | list[Row] | float] = []
        self.submits: list[Submitted] = []
        self.cut: list[Submitted] = []
        self.tidying = 0.0  # seconds that a cancelled submit takes to end
        self.opening = 0.0  # seconds until a submit is at the portal
        self.at_work = Counter[str | None]()
        self.most_at_work = Counter[str | None]()

    async def create(
        self,
        cookie: Cookie | None,
        products: Sequence[Product],
        sub_ids: tuple[str, ...],
        may_send: MaySend,
    ) -> Sequence[Row]:
        if self.opening:
            await trio.sleep(self.opening)
        may_send()
        submit = Submitted(cookie, tuple(products), sub_ids, trio.current_time())
        self.submits.append(submit)
        step = self.script.pop(0) if self.script else self.seconds
        account = cookie.account if cookie else None
        self.at_work[account] += 1
        self.most_at_work[account] = max(self.at_work[account], self.most_at_work[account])
        try:
            await trio.sleep(step if isinstance(step, float) else self.seconds)
        except trio.Cancelled:
            self.cut.append(submit)
            with trio.CancelScope(shield=True):
                await trio.sleep(self.tidying)
            raise
        finally:
            self.at_work[account] -= 1
        if isinstance(step, Refused):
            raise step
        if isinstance(step, list):
            return step
        return [row_of(product, sub_ids, cookie) for product in products]

    @property
    def submitted(self) -> list[set[int]]:
        """The items of each submit, in order."""
        return [submit.items for submit in self.submits]

    @property
    def times(self) -> list[float]:
        return [submit.at for submit in self.submits]


class FakeProducts:
    """Reads products, each in `seconds`. `script` says what comes of an item instead of its data:
    a refusal, nothing, or a number of seconds first.
    """

    def __init__(self) -> None:
        self.needs_cookie = True
        self.at_once = READS_AT_ONCE
        self.seconds = 0.1
        self.script: dict[int, Refused | float | None] = {}
        self.reads: list[tuple[Cookie | None, int, float]] = []
        self.cut: list[int] = []
        self.at_work = 0

    async def read(self, cookie: Cookie | None, product: Product) -> ProductData | None:
        item = product.item_id
        self.reads.append((cookie, item, trio.current_time()))
        step = self.script.get(item, self.seconds)
        self.at_work += 1
        try:
            with trio.fail_after(READ_WITHIN):
                await trio.sleep(step if isinstance(step, float) else self.seconds)
        except trio.Cancelled:
            self.cut.append(item)
            raise
        except trio.TooSlowError:
            self.cut.append(item)
            raise PortalSilent("no product data") from None
        finally:
            self.at_work -= 1
        if isinstance(step, Refused):
            raise step
        return None if step is None else data_of(product)

    @property
    def items(self) -> list[int]:
        """The items that were read, in order."""
        return [item for _, item, _ in self.reads]


class FakeResolver:
    """Resolves a link in `seconds`, or in its time in `slow`. One not in `known` is no product."""

    def __init__(self) -> None:
        self.known: dict[str, Product | NotALink | Unresolved] = {}
        self.seconds = 0.1
        self.slow: dict[str, float] = {}
        self.asked: list[str] = []
        self.at_work = 0

    async def resolve(self, short: Short) -> Product | NotALink | Unresolved:
        self.asked.append(short.url)
        self.at_work += 1
        try:
            await trio.sleep(self.slow.get(short.url, self.seconds))
        finally:
            self.at_work -= 1
        return self.known.get(short.url, NotALink("nothing is there"))


class Asked(Generic[T]):
    """A question that is asked in the background: its answer or refusal, and when that came."""

    def __init__(self, question: Callable[[], Awaitable[T]]) -> None:
        self._question = question
        self._answer: T | None = None
        self.refusal: Refused | None = None
        self.at: float | None = None
        self.scope = trio.CancelScope()
        self.over = trio.Event()

    async def run(self) -> None:
        with self.scope:
            try:
                self._answer = await self._question()
            except Refused as refusal:
                self.refusal = refusal
            self.at = trio.current_time()
        self.over.set()

    @property
    def answer(self) -> T:
        assert self._answer is not None, f"no answer, but {self.refusal!r}"
        return self._answer

    def leave(self) -> None:
        self.scope.cancel()


Ask = Callable[[Callable[[], Awaitable[T]]], Asked[T]]


class Fakes:
    """A service with everything around it faked."""

    cookie = COOKIE
    silent = SILENT
    item = staticmethod(item)
    link = staticmethod(link)
    short = staticmethod(short)
    entry = staticmethod(entry_of)

    def __init__(self, nursery: trio.Nursery | None = None) -> None:
        """The service runs in `nursery`, unless `open` is given another one."""
        self._nursery = nursery
        self.links = FakeLinks()
        self.products = FakeProducts()
        self.resolver = FakeResolver()
        self.pauses: PauseStore | None = None
        self.missing: list[bool] = []  # what was told of the cookie
        self._service: ConversionService | None = None

    def make(self, **limits: Any) -> ConversionService:
        """The service, not yet running. `limits` are those of `ConversionLimits`."""
        setup = ConversionSetup(
            VN,
            self.links,
            self.products,
            self.resolver.resolve,
            ConversionLimits(**limits),
            on_cookie_missing=self.missing.append,
        )
        if self.pauses is not None:
            setup = replace(setup, pauses=self.pauses.loaded, keep_pauses=self.pauses.keep)
        self._service = ConversionService(setup)
        return self._service

    async def open(self, nursery: trio.Nursery | None = None, **limits: Any) -> ConversionService:
        """The service, running."""
        service, nursery = self.make(**limits), nursery or self._nursery
        assert nursery is not None
        await nursery.start(service.run)
        return service

    @property
    def service(self) -> ConversionService:
        assert self._service is not None
        return self._service

    async def convert(
        self, *links: str, sub_ids: tuple[str, ...] = (), cookie: Cookie | None = COOKIE
    ) -> dict[str, LinkResult]:
        """Return the service's answer."""
        return await self.service.convert(ConversionRequest(links, sub_ids, cookie, "owner"))

    async def codes(
        self, *links: str, sub_ids: tuple[str, ...] = (), cookie: Cookie | None = COOKIE
    ) -> list[int]:
        """The same as failCodes, in the order of the links; 0 for a converted one."""
        entries = await self.convert(*links, sub_ids=sub_ids, cookie=cookie)
        assert list(entries) == list(links)
        return [entry.fail_code for entry in entries.values()]


def make_queue(
    submit: Submit, nursery: trio.Nursery, *, chunk: int = 3, account: Account | None = None
) -> AccountQueue:
    """A queue, of an account that nobody watches unless another is given."""
    return AccountQueue(
        submit,
        account or Account("1001", lambda _: None),
        limits=ConversionLimits(chunk=chunk),
        max_reads=READS_AT_ONCE,
        nursery=nursery,
        wait_times=ConversionTimings().wait,
    )


def enqueue(
    queue: AccountQueue,
    number: int,
    cookie: Cookie | None = COOKIE,
    *,
    sub_ids: tuple[str, ...] = (),
) -> PendingLink:
    """Enqueue the link of an item."""
    return queue.enqueue(cookie, item(number), sub_ids)


def waiting(
    queue: AccountQueue,
    number: int,
    cookie: Cookie | None = COOKIE,
    *,
    sub_ids: tuple[str, ...] = (),
) -> Callable[[], Awaitable[Row]]:
    """Enqueue a link at once; return the function that waits for its row."""
    return partial(queue.wait_for_row, enqueue(queue, number, cookie, sub_ids=sub_ids))


@pytest.fixture
def links() -> FakeLinks:
    return FakeLinks()


@pytest.fixture
def queue(links: FakeLinks, nursery: trio.Nursery) -> AccountQueue:
    """A queue whose submits have room for three links."""
    return make_queue(links.create, nursery)


@pytest.fixture
def fakes(nursery: trio.Nursery) -> Fakes:
    return Fakes(nursery)


@pytest.fixture
def ask(nursery: trio.Nursery) -> Ask[Any]:
    """Asks in the background."""

    def start(question: Callable[[], Awaitable[T]]) -> Asked[T]:
        asked = Asked(question)
        nursery.start_soon(asked.run)
        return asked

    return start


@pytest.fixture(params=range(ORDERS))
def any_order() -> None:
    """Run the test several times: trio draws the order of ready tasks anew each time."""
