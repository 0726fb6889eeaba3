"""The terms of the history: what is kept of a converted link, and how it is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from smartlinkd.conversion.schemas import SuccessEntry

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True)
class HistoryLimits:
    """The history's own bounds. No setting changes them."""

    calls: int = 64
    """Calls that may wait for the file."""
    pending: int = 2000
    """Entries that may wait in memory to be written. The next one is lost."""
    batch: int = 200
    """Entries of one transaction."""
    gather_s: float = 0.25
    """How long the first entry waits for more, so that they share a transaction."""
    retry_s: float = 5.0
    """The wait after a write that failed."""
    prune_every_s: float = 600.0
    link_chars: int = 4096
    """A submitted text that is longer is cut."""


@dataclass(frozen=True)
class HistoryRetention:
    """How much is kept. An `age` of zero keeps nothing."""

    age: timedelta
    count: int
    size_bytes: int

    @property
    def keeps_any(self) -> bool:
        return self.age > timedelta(0)


@dataclass(frozen=True)
class Record:
    """A converted link that is to be kept."""

    at_ms: int
    client: str
    sub_ids: tuple[str, ...]
    link: str
    made: SuccessEntry


@dataclass(frozen=True)
class Entry:
    """A converted link that is kept. `product` is JSON, or None when its data was not known."""

    id: int
    at: datetime
    client: str
    link: str
    short_link: str
    long_link: str
    sub_ids: tuple[str, ...]
    product: str | None


@dataclass(frozen=True)
class Filters:
    """Which entries are meant. Each filter that is set must fit.

    `query` has words; each must be a part of the product's name, the link, the short link or a
    sub-id. `sub_id` must be one of the sub-ids as a whole. Case and diacritics do not count.
    `since_ms` is the first moment that fits, `until_ms` the first one after it that does not.
    """

    query: str = ""
    sub_id: str = ""
    since_ms: int | None = None
    until_ms: int | None = None


ALL = Filters()


@dataclass(frozen=True)
class Day:
    """The links of one day, and the commission of one sale of each."""

    day: date
    links: int
    commission: int


def milliseconds(moment: datetime) -> int:
    """Return the milliseconds from 1970 to an aware moment."""
    return (moment - _EPOCH) // _MILLISECOND


def moment_of(at_ms: int) -> datetime:
    """Return the moment that is so many milliseconds after 1970."""
    return _EPOCH + at_ms * _MILLISECOND
