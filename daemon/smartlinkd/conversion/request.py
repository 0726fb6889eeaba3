"""A request to convert links, its progress, and its results.

A request fails as a whole only if none of its links was converted, or if its client asked for that
(`fail_on_transient_error`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import trio

from smartlinkd.conversion.account_queue import PendingLink
from smartlinkd.conversion.sources import SubIds
from smartlinkd.errors import BrowserEnded, Refused, Unavailable, UpstreamFailed
from smartlinkd.marketplace.answers import FailCode
from smartlinkd.marketplace.errors import HumanCheck, SessionLost
from smartlinkd.marketplace.links import Short, parse
from smartlinkd.marketplace.markets import Market
from smartlinkd.marketplace.products import ProductData
from smartlinkd.vault.cookie import Cookie

TRANSIENT: Final = (Unavailable, BrowserEnded)
"""Refusals that pass in a moment, above all while the browser restarts."""


@dataclass(frozen=True)
class ConversionRequest:
    """A request to convert distinct links, as they were submitted."""

    links: tuple[str, ...]
    sub_ids: SubIds
    cookie: Cookie | None
    """None where the sources need no cookie, or none is stored."""
    fail_on_transient_error: bool = False
    """True if the client asks again instead of taking a part. What was made stays cached."""
    client: str | None = None
    """The client's name, for the history. A request without one is not kept there."""

    def is_repeated_after(self, refusal: Refused) -> bool:
        """Return True if the client asks the same again after this refusal."""
        return self.fail_on_transient_error and isinstance(refusal, TRANSIENT)


@dataclass(frozen=True)
class Converted:
    """A link that was made. `product` is None if there is no data of it."""

    short_link: str
    long_link: str
    product: ProductData | None


@dataclass(frozen=True)
class LinkFailure:
    """A link that was not made."""

    fail_code: int


LinkResult = Converted | LinkFailure


class RequestProgress:
    """The state of one request until it is answered. `deadline` is on trio's clock."""

    def __init__(self, request: ConversionRequest, market: Market, deadline: float) -> None:
        self.request = request
        self.deadline = deadline
        self.parsed = {link: parse(link, market) for link in request.links}
        self.results: dict[str, LinkResult] = {}
        self.refusals: dict[str, Refused] = {}
        self.queued: list[PendingLink] = []
        self.unresolved = sum(isinstance(found, Short) for found in self.parsed.values())
        self.may_queue = trio.Event()
        """Set when the products may enter the queue: all short links are resolved, or too slow."""

    def note_resolved(self) -> None:
        """Note that one more short link is resolved, or never will be."""
        self.unresolved -= 1
        if self.unresolved == 0:
            self.may_queue.set()

    def finish(self) -> dict[str, LinkResult]:
        """Return the results in the order of the links.

        Raises:
            Refused: there is no link to show, and the links are not to blame; or the client asks
                again after one of the refusals.
        """
        refusals = self.refusals.values()
        repeated = next((each for each in refusals if self.request.is_repeated_after(each)), None)
        if repeated is not None:
            raise repeated.with_traceback(None)
        links = self.request.links
        if not any(isinstance(result, Converted) for result in self.results.values()):
            if self.refusals:
                raise _gravest(refusals)
            if len(self.results) < len(links):
                raise self._too_late()
        return {link: self._result(link) for link in links}

    def _result(self, link: str) -> LinkResult:
        refusal = self.refusals.get(link)
        if refusal is not None:
            return LinkFailure(fail_code_of(refusal))
        return self.results.get(link, LinkFailure(FailCode.UNKNOWN))

    def _too_late(self) -> Refused:
        if self.queued and not any(pending.is_submitted for pending in self.queued):
            return still_queued()
        return UpstreamFailed(
            "the marketplace did not answer in time (browser.job_timeout); try again later"
        )


def fail_code_of(refusal: Refused) -> FailCode:
    """Return the failCode of a refused link, as it has it beside converted ones."""
    needs_owner = isinstance(refusal, HumanCheck | SessionLost)
    return FailCode.NO_PERMISSION if needs_owner else FailCode.UNKNOWN


def _gravest(refusals: Iterable[Refused]) -> Refused:
    """Return the refusal that the owner has to hear of first."""

    def gravity(refusal: Refused) -> int:
        kinds = (HumanCheck, SessionLost, UpstreamFailed)
        return next((i for i, kind in enumerate(kinds) if isinstance(refusal, kind)), len(kinds))

    return min(refusals, key=gravity).with_traceback(None)


def still_queued() -> Unavailable:
    """Return the refusal of a request whose time was up before its work began."""
    return Unavailable(
        "the request was still queued when its time was up (browser.job_timeout); "
        "try again shortly, or send fewer at once",
        retry_after=5,
    )
