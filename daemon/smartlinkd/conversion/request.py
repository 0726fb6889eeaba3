"""A request to convert links: its links parsed, its progress, and the rules of its answer.

A request fails as a whole only if none of its links was converted, or if its client asked for that
(`fail_on_transient_error`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import trio

from smartlinkd.conversion.account_queue import PendingLink
from smartlinkd.conversion.schemas import FailureEntry, LinkResult, SuccessEntry
from smartlinkd.conversion.sources import SubIds
from smartlinkd.errors import BrowserEnded, Invalid, Refused, Unavailable, UpstreamFailed
from smartlinkd.marketplace.answers import FailCode
from smartlinkd.marketplace.errors import HumanCheck, SessionLost
from smartlinkd.marketplace.links import NotALink, Product, Short, parse
from smartlinkd.marketplace.markets import Market
from smartlinkd.threads import on_thread
from smartlinkd.vault.cookie import Cookie

PARSED_IN_PLACE: Final = 8 * 1024
"""Characters of links that are parsed on the event loop: 10 ms at worst. More go to a thread."""

TRANSIENT: Final = (Unavailable, BrowserEnded)
"""Refusals that pass in a moment, above all while the browser restarts."""

Parsed = Mapping[str, Product | Short | NotALink]


class NoCookie(Invalid):
    """The links are made with a cookie, and there is none: neither a sent nor a stored one."""


@dataclass(frozen=True)
class ConversionRequest:
    """A request to convert distinct links, as the client wrote them."""

    links: tuple[str, ...]
    sub_ids: SubIds
    cookie: Cookie | None
    """None if the client sent none and none is stored."""
    client: str
    """The client's name, for the history."""
    fail_on_transient_error: bool = False
    """True if the client asks again instead of taking a part. What was made stays cached."""

    def is_repeated_after(self, refusal: Refused) -> bool:
        """Return True if the client asks the same again after this refusal."""
        return self.fail_on_transient_error and isinstance(refusal, TRANSIENT)


def conversion_request(
    links: Iterable[str],
    sub_ids: Sequence[str] | None,
    cookie: Cookie | None,
    *,
    client: str,
    fail_on_transient_error: bool = False,
) -> ConversionRequest:
    """Return the request. A link that was given twice counts once.

    Empty sub-ids at the end are dropped, so that ('a',) and ('a', '') are merged and cached as one.
    """
    kept = list(sub_ids or ())
    while kept and not kept[-1]:
        kept.pop()
    return ConversionRequest(
        tuple(dict.fromkeys(links)), tuple(kept), cookie, client, fail_on_transient_error
    )


class RequestProgress:
    """The state of one request until it is answered."""

    def __init__(self, request: ConversionRequest, parsed: Parsed) -> None:
        """`parsed` has all links of the request."""
        self.request = request
        self.parsed = parsed
        self.results: dict[str, LinkResult] = {}
        self.refusals: dict[str, Refused] = {}
        self.queued: list[PendingLink] = []
        self.unresolved = sum(isinstance(found, Short) for found in parsed.values())
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
        if not any(isinstance(result, SuccessEntry) for result in self.results.values()):
            if self.refusals:
                raise _gravest(refusals)
            if len(self.results) < len(links):
                raise self._too_late()
        return {link: self._result(link) for link in links}

    def _result(self, link: str) -> LinkResult:
        refusal = self.refusals.get(link)
        if refusal is not None:
            return FailureEntry(fail_code=fail_code_of(refusal))
        return self.results.get(link, FailureEntry(fail_code=FailCode.UNKNOWN))

    def _too_late(self) -> Refused:
        if self.queued and not any(pending.is_submitted for pending in self.queued):
            return still_queued()
        return UpstreamFailed(
            "the marketplace did not answer in time (browser.job_timeout); try again later"
        )


async def parse_links(links: Sequence[str], market: Market) -> Parsed:
    """Return what each of `links` means. Raises `NoThread`."""

    def parse_all() -> Parsed:
        return {link: parse(link, market) for link in links}

    if sum(map(len, links)) <= PARSED_IN_PLACE:
        return parse_all()
    return await on_thread(parse_all)


def fail_code_of(refusal: Refused) -> FailCode:
    """Return the failCode of a refused link in an answer that has converted ones."""
    needs_owner = isinstance(refusal, HumanCheck | SessionLost)
    return FailCode.NO_PERMISSION if needs_owner else FailCode.UNKNOWN


def _gravest(refusals: Collection[Refused]) -> Refused:
    """Return the refusal that the owner has to hear of first."""
    kinds = (HumanCheck, SessionLost, UpstreamFailed, Refused)
    found = (each for kind in kinds for each in refusals if isinstance(each, kind))
    return next(found).with_traceback(None)


def still_queued() -> Unavailable:
    """Return the refusal of a request whose time was up before its work began."""
    return Unavailable(
        "the request was still queued when its time was up (browser.job_timeout); "
        "try again shortly, or send fewer at once",
        retry_after=5,
    )
