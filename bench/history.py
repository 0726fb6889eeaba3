"""Row 10: the time that the history adds to a conversion, and searches in 100 000 entries.

One daemon converts with the history and without it, in turns: a reload switches it. Two daemons
would differ by more than the history costs. The search is measured in the store, without HTTP.
"""

from __future__ import annotations

import random
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from bench.asking import JsonClient
from bench.daemons import Daemon, configure, daemon, wait_until
from bench.measure import Comparison, Goal, Plan, Row, Series, interleave
from bench.stage import Links, ask_daemon, connect, progress_of
from smartlinkd.conversion.schemas import SuccessEntry
from smartlinkd.history.database import HistoryDatabase
from smartlinkd.history.model import Filters, HistoryLimits, Record
from smartlinkd.marketplace.products import ProductData
from smartlinkd.sandbox.batch import Origins
from smartlinkd.sandbox.session import DEFAULT_ACCOUNT, cookie_header
from tests.config_file import Tables
from tests.programs import sandbox

WITH, WITHOUT = "history", "no history"
KEPT_DAYS: Final = {WITH: 90, WITHOUT: 0}
SIZES: Final = {1: 40, 15: 8}
"""Links in a request, and requests in a turn. A turn is longer than the history waits before it
writes, so that the write is measured, too."""
COST: Final = Goal(at_most=1.05)
ENTRIES: Final = 100_000
LIMIT_S: Final = 0.05
"""The longest time that a search may take, in seconds."""
PAGE: Final = 50
APART_MS: Final = 60_000
"""Milliseconds between two entries."""
TABLES: Final[Tables] = {"marketplace": {"method": "fetch"}, "products": {"source": "none"}}
WORDS: Final = re.split(
    " ",
    "áo thun nam nữ quần jean giày thể thao sneaker cao cấp chính hãng giá rẻ đồng hồ điện tử tai "
    "nghe bluetooth không dây sạc nhanh túi xách da bò balo laptop ốp lưng kem chống nắng nước hoa",
)


def row_10(plan: Plan) -> Row:
    return Row(
        10,
        "the history: beside none, and its search",
        [*_conversions(plan), *_searches(plan)],
        [
            "conversions by `fetch` without product data, the shortest that there are; one daemon, "
            "which a reload switches between the two",
            f"a search reads the {PAGE} newest entries that fit, in the store, without HTTP",
        ],
    )


def _conversions(plan: Plan) -> Iterator[Comparison]:
    with (
        sandbox(plan.folder / "portal") as portal,
        daemon(plan.folder / "daemon", portal, TABLES) as served,
        connect(served) as client,
    ):
        served.ask("POST", "/api/sync-cookie", {"cookie": cookie_header(DEFAULT_ACCOUNT)})
        links = Links(portal)
        for size, times in SIZES.items():
            what = f"a conversion, {size} link{'s' if size > 1 else ''}"
            sides = {
                name: partial(_Side(served, client, portal, links, name), size, times)
                for name in KEPT_DAYS
            }
            for side in sides.values():
                side()
            found = interleave(sides, plan.rounds(30, 2), progress_of(plan, what))
            ours, theirs = (Series(name, "s", found[name]) for name in (WITH, WITHOUT))
            yield Comparison(what, ours, theirs, goal=COST)


@dataclass(frozen=True)
class _Side:
    """The daemon, with the history or without it."""

    served: Daemon
    client: JsonClient
    portal: Origins
    links: Links
    name: str

    def __call__(self, size: int, times: int) -> float:
        """Convert, and return the mean seconds of a request."""
        self._switch()
        orders = self.links.orders(times + 1, size)
        ask_daemon(self.client, orders[0])
        began = time.perf_counter()
        for order in orders[1:]:
            ask_daemon(self.client, order)
        took = time.perf_counter() - began
        # Pending entries are written now, and not in the next turn.
        self.served.ask("GET", "/api/history?limit=1")
        return took / times

    def _switch(self) -> None:
        log = self.served.program.log
        before = _reloads(log)
        days = {"history": {"retention_days": KEPT_DAYS[self.name]}}
        configure(self.served.folder, self.portal, {**TABLES, **days})
        self.served.program.process.send_signal(signal.SIGHUP)
        wait_until(lambda: _reloads(log) > before, log)


def _reloads(log: Path) -> int:
    return log.read_text(encoding="utf-8").count("the configuration is reloaded")


def _searches(plan: Plan) -> Iterator[Comparison]:
    plan.tell(f"storing {ENTRIES} entries")
    with _filled(plan.folder / "history.sqlite") as store:
        for name, filters in _searched().items():
            measure = partial(_seconds_of, partial(store.page, filters, PAGE))
            measure()
            found = interleave({name: measure}, plan.rounds(50, 5), progress_of(plan, name))
            limit = Series("50 ms", "s", [LIMIT_S] * len(found[name]))
            ours = Series("search", "s", found[name])
            yield Comparison(f"search: {name}", ours, limit, goal=Goal(at_most=1.0))


def _searched() -> dict[str, Filters]:
    middle = ENTRIES // 2 * APART_MS
    return {
        "a common word": Filters("thun"),
        "three words": Filters("dong ho bluetooth"),
        "the number in a name": Filters("ma 99990"),
        "a part of a link": Filters("product/7/4242"),
        "a word of two letters": Filters("ao"),
        "two letters that are nowhere": Filters("zq"),
        "words that are nowhere": Filters("khong co gi het"),
        "a sub-id": Filters(sub_id="group7"),
        "a word, in a week of the past": Filters(
            "thun", since_ms=middle, until_ms=middle + 7 * 86_400_000
        ),
        "a link, converted once": Filters(_link(77_777)),
        "no filter": Filters(),
    }


@contextmanager
def _filled(path: Path) -> Iterator[HistoryDatabase]:
    store, chance = HistoryDatabase(path, HistoryLimits(pending=ENTRIES)), random.Random(1)
    for number in range(ENTRIES):
        store.add(_record(number, chance))
    store.write_pending()
    try:
        yield store
    finally:
        store.close()


def _record(number: int, chance: random.Random) -> Record:
    name = " ".join([*chance.choices(WORDS, k=12), "mã", str(number)])
    short = f"https://s.shopee.vn/{number * 7919:x}"
    long = f"{_link(number)}?utm_campaign=-&utm_content=a-b---&utm_source=an_17300000000"
    product = ProductData(
        name=name,
        price=199_000,
        image="https://down-vn.img.susercontent.com/file/0123456789abcdef0123456789abcdef",
        shop_name="Tiệm Son",
        rating="4.8",
        sales=number,
        commission=12_000,
        commission_rate="18%",
        product_link=_link(number),
    )
    made = SuccessEntry(short_link=short, long_link=long, product=product)
    return Record(number * APART_MS, "owner", ("fb", f"group{number % 50}"), _link(number), made)


def _link(number: int) -> str:
    return f"https://shopee.vn/product/7/{number * 131}"


def _seconds_of(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
