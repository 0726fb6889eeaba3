"""An order, what is known of it while it is worked on, and the answer that comes of that.

The rule behind the answer: what was converted is never lost. An order fails as a whole only when it
has no link to show, and then with the reason that its owner has to hear of first; or where who asks
would rather ask again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import trio

from smartlinkd.conversion.line import Ticket
from smartlinkd.conversion.sources import SubIds
from smartlinkd.errors import BrowserEnded, Refused, Unavailable, UpstreamFailed
from smartlinkd.marketplace.answers import FailCode
from smartlinkd.marketplace.errors import HumanCheck, SessionLost
from smartlinkd.marketplace.links import Short, parse
from smartlinkd.marketplace.markets import Market
from smartlinkd.marketplace.products import ProductData
from smartlinkd.vault.cookie import Cookie

PASSING: Final = (Unavailable, BrowserEnded)
"""Refusals that are gone in a moment, when the browser is there again above all."""


@dataclass(frozen=True)
class Order:
    """One request to convert: distinct links as submitted, sub-ids, and whose account it is.

    `cookie` may be missing where no source needs one.
    """

    links: tuple[str, ...]
    sub_ids: SubIds
    cookie: Cookie | None
    whole_or_again: bool = False
    """Who asks would rather ask again than have a part: what passes (`PASSING`) fails the order.
    What was made by then is remembered."""
    client: str | None = None
    """Who asks, for the history. An order without a client is not kept there."""

    def is_asked_again_after(self, refusal: Refused) -> bool:
        """Whether who asks asks the same again after this."""
        return self.whole_or_again and isinstance(refusal, PASSING)


@dataclass(frozen=True)
class Converted:
    """A link that was made. `product` is None when its data was not to be had."""

    short_link: str
    long_link: str
    product: ProductData | None


@dataclass(frozen=True)
class Failed:
    """A link that was not made, with the seed's failCode."""

    fail_code: int


Entry = Converted | Failed


class OpenOrder:
    """What is known of one order so far. `deadline` is on trio's clock."""

    def __init__(self, order: Order, market: Market, number: int, deadline: float) -> None:
        self.order = order
        self.deadline = deadline
        # Tasks run in any order; requests, and the links of one, keep theirs by this.
        self.ranks = {link: (number, place) for place, link in enumerate(order.links)}
        self.readings = {link: parse(link, market) for link in order.links}
        self.entries: dict[str, Entry] = {}
        self.refusals: dict[str, Refused] = {}
        self.tickets: list[Ticket] = []
        # short links whose way is not known yet
        self.unresolved = sum(isinstance(reading, Short) for reading in self.readings.values())
        self.gathered = trio.Event()  # the products may take their tickets

    def note_resolved(self) -> None:
        """The way of one more short link is known, or will not be. After the last one the products
        take their tickets."""
        self.unresolved -= 1
        if self.unresolved == 0:
            self.gathered.set()

    def answer(self) -> dict[str, Entry]:
        """The entries, in the order of the links. Raises when there is no link to show and the
        links are not to blame; or, for who asks again, when one was refused by what passes.
        """
        passing = [why for why in self.refusals.values() if self.order.is_asked_again_after(why)]
        if passing:
            raise passing[0].with_traceback(None)
        late = [link for link in self.order.links if link not in self.entries | self.refusals]
        if any(isinstance(entry, Converted) for entry in self.entries.values()):
            found: dict[str, Entry] = self.entries | dict.fromkeys(late, Failed(FailCode.UNKNOWN))
            found |= {link: Failed(code_for(why)) for link, why in self.refusals.items()}
            return {link: found[link] for link in self.order.links}
        if self.refusals:
            raise _gravest(self.refusals.values())
        if late:
            raise self._too_late()
        return {link: self.entries[link] for link in self.order.links}

    def _too_late(self) -> Refused:
        if self.tickets and not any(ticket.submitted for ticket in self.tickets):
            return still_queued()
        return UpstreamFailed(
            "the marketplace did not answer in time (browser.job_timeout); try again later"
        )


def code_for(refusal: Refused) -> FailCode:
    """The failCode of a link that was refused, as it has it where others were converted."""
    wants_owner = isinstance(refusal, HumanCheck | SessionLost)
    return FailCode.NO_PERMISSION if wants_owner else FailCode.UNKNOWN


def _gravest(refusals: Iterable[Refused]) -> Refused:
    """The refusal that the owner has to hear of first."""

    def gravity(refusal: Refused) -> int:
        kinds = (HumanCheck, SessionLost, UpstreamFailed)
        return next((i for i, kind in enumerate(kinds) if isinstance(refusal, kind)), len(kinds))

    return min(refusals, key=gravity).with_traceback(None)


def still_queued() -> Unavailable:
    """The refusal of an order whose time was up before its work began."""
    return Unavailable(
        "the request was still queued when its time was up (browser.job_timeout); "
        "try again shortly, or send fewer at once",
        retry_after=5,
    )
