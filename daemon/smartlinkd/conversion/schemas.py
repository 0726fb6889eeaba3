"""A request to convert links, and the entries of its answer, as programs of all kinds send them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field

from smartlinkd.conversion.sources import SubIds
from smartlinkd.errors import BrowserEnded, Refused, Unavailable
from smartlinkd.marketplace.products import ProductData
from smartlinkd.vault.cookie import Cookie
from smartlinkd.wire import AsSent, Body

MAX_LINKS = 15
MAX_SUB_IDS = 5
MAX_SUB_ID = 50

TRANSIENT: Final = (Unavailable, BrowserEnded)
"""Refusals that pass in a moment, above all while the browser restarts."""


@dataclass(frozen=True)
class ConversionRequest:
    """A request to convert distinct links, as they were submitted."""

    links: tuple[str, ...]
    sub_ids: SubIds
    cookie: Cookie | None
    """None where the sources need no cookie, or none is stored."""
    client: str
    """The client's name, for the history."""
    fail_on_transient_error: bool = False
    """True if the client asks again instead of taking a part. What was made stays cached."""

    def is_repeated_after(self, refusal: Refused) -> bool:
        """Return True if the client asks the same again after this refusal."""
        return self.fail_on_transient_error and isinstance(refusal, TRANSIENT)


def _sub_id(value: str) -> str:
    if value and not (value.isascii() and value.isalnum() and len(value) <= MAX_SUB_ID):
        raise ValueError(f"must be 1 to {MAX_SUB_ID} letters a-z, A-Z and digits, or empty")
    return value


SubId = Annotated[
    str,
    AfterValidator(_sub_id),
    Field(
        description=f"letters and digits, at most {MAX_SUB_ID}; empty keeps the position",
        json_schema_extra={"pattern": f"^[A-Za-z0-9]{{0,{MAX_SUB_ID}}}$"},
    ),
]


class LinksRequest(Body):
    """The links to convert. The caller adds the cookie."""

    # The answer has each link as its key, exactly as it was sent.
    links: Annotated[list[str], Field(min_length=1, max_length=MAX_LINKS), AsSent()]
    sub_ids: Annotated[list[SubId], Field(max_length=MAX_SUB_IDS)] | None = None

    def to_request(
        self, cookie: Cookie | None, *, client: str, fail_on_transient_error: bool = False
    ) -> ConversionRequest:
        """Return the request. A link that was given twice counts once.

        Empty sub-ids at the end are dropped, so that ('a',) and ('a', '') are merged and cached as
        one.
        """
        sub_ids = list(self.sub_ids or ())
        while sub_ids and not sub_ids[-1]:
            sub_ids.pop()
        return ConversionRequest(
            links=tuple(dict.fromkeys(self.links)),
            sub_ids=tuple(sub_ids),
            cookie=cookie,
            client=client,
            fail_on_transient_error=fail_on_transient_error,
        )


class SuccessEntry(Body):
    """A link that was made. `product` is null if there is no data of it."""

    short_link: str
    long_link: str
    fail_code: Literal[0] = 0
    product: ProductData | None


class FailureEntry(Body):
    """A link that was not made."""

    error: Literal[True] = True
    fail_code: int


LinkResult = SuccessEntry | FailureEntry
