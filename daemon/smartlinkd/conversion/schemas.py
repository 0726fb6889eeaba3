"""The links to convert, and the entries of the answer: what programs of all kinds exchange."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from smartlinkd.marketplace.products import ProductData
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
    """The links to convert, and the sub-ids for all of them."""

    # The answer has each link as its key, exactly as it was sent.
    links: Annotated[list[str], Field(min_length=1, max_length=MAX_LINKS), AsSent()]
    sub_ids: Annotated[list[SubId], Field(max_length=MAX_SUB_IDS)] | None = None


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
