"""A conversion on the wire: what is asked, and the entries that answer (seed, sections 2 and 4).

Whoever lets others convert, the facade and the crews' tool, takes and gives exactly this.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from smartlinkd.conversion.request import Converted, Entry, Order
from smartlinkd.marketplace.products import ProductData
from smartlinkd.vault.cookie import Cookie
from smartlinkd.wire import AsSent, Body

MAX_LINKS = 15
MAX_SUB_IDS = 5
MAX_SUB_ID = 50


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
    """What is to be converted; whose account it is for, others add."""

    # The answer has each link as its key, exactly as it was sent.
    links: Annotated[list[str], Field(min_length=1, max_length=MAX_LINKS), AsSent()]
    sub_ids: Annotated[list[SubId], Field(max_length=MAX_SUB_IDS)] | None = None

    def order(self, cookie: Cookie | None, *, client: str, whole_or_again: bool = False) -> Order:
        """As an `Order`: a link given twice counts once, and empty sub-ids at the end are dropped,
        so that ('a',) and ('a', '') are merged and remembered as one.
        """
        sub_ids = list(self.sub_ids or ())
        while sub_ids and not sub_ids[-1]:
            sub_ids.pop()
        return Order(
            links=tuple(dict.fromkeys(self.links)),
            sub_ids=tuple(sub_ids),
            cookie=cookie,
            whole_or_again=whole_or_again,
            client=client,
        )


class SuccessEntry(Body):
    short_link: str
    long_link: str
    fail_code: Literal[0] = 0
    product: ProductData | None


class FailureEntry(Body):
    error: Literal[True] = True
    fail_code: int


def mapping(entries: Mapping[str, Entry]) -> dict[str, SuccessEntry | FailureEntry]:
    """The desk's entries as they are sent, by their links and in their order."""
    return {link: _shape(entry) for link, entry in entries.items()}


def _shape(entry: Entry) -> SuccessEntry | FailureEntry:
    if isinstance(entry, Converted):
        return SuccessEntry(
            short_link=entry.short_link, long_link=entry.long_link, product=entry.product
        )
    return FailureEntry(fail_code=entry.fail_code)
