"""A history on a real file, with a clock of the test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trio

from smartlinkd.conversion.request import ConversionRequest
from smartlinkd.conversion.schemas import LinkResult, SuccessEntry
from smartlinkd.history.actor import History
from smartlinkd.history.model import ALL, Filters, HistoryLimits, HistoryRetention
from smartlinkd.marketplace.products import ProductData

NOW = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
QUICK = HistoryLimits(gather_s=0.0, retry_s=0.02)


class Clock:
    """The wall clock: it stands still until it is set."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now

    def advance(self, **units: float) -> None:
        self.now += timedelta(**units)


class RunningHistory:
    """A running history, and the conversions that it is told of."""

    def __init__(self, history: History, clock: Clock) -> None:
        self.history = history
        self.clock = clock

    def retain(self, *, days: float = 90) -> None:
        """Set the retention from now on."""
        self.history.set_retention(HistoryRetention(timedelta(days=days), 100_000, 2**28))

    def convert(
        self,
        *links: str,
        name: str | None = None,
        sub_ids: tuple[str, ...] = (),
        client: str = "owner",
        commission: int | None = None,
    ) -> None:
        """Report these links as converted."""
        product = ProductData(name=name, commission=commission) if name is not None else None
        answer: dict[str, LinkResult] = {}
        for link in links:
            short = f"https://s.shopee.vn/{abs(hash(link)) % 10**9}"
            answer[link] = SuccessEntry(
                short_link=short, long_link=f"{short}?long", product=product
            )
        self.history.keep(ConversionRequest(links, sub_ids, None, client=client), answer)

    async def links(self, filters: Filters = ALL) -> list[str]:
        """Return the submitted links, newest first."""
        return [entry.link for entry in await self.history.page(filters, limit=1000)]


Open = Callable[..., AbstractAsyncContextManager[RunningHistory]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.sqlite"


@pytest.fixture
def open_history(path: Path) -> Open:
    """Open the history; when the block ends it is stopped in order."""

    @asynccontextmanager
    async def open_it(
        limits: HistoryLimits = QUICK, *, days: float = 90, file: Path = path
    ) -> AsyncIterator[RunningHistory]:
        clock = Clock()
        history = History(
            file, retention=HistoryRetention(timedelta(), 1, 1), limits=limits, wall=clock
        )
        opened = RunningHistory(history, clock)
        opened.retain(days=days)
        async with trio.open_nursery() as nursery:
            await nursery.start(history.run)
            yield opened
            history.stop()

    return open_it


@pytest.fixture
async def running(open_history: Open) -> AsyncIterator[RunningHistory]:
    async with open_history() as running:
        yield running
