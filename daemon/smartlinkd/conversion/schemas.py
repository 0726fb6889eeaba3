"""Request and response bodies of a conversion, for the HTTP API and for the crews' tool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from smartlinkd.conversion.request import ConversionRequest, Converted, LinkResult
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
            fail_on_transient_error=fail_on_transient_error,
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


def mapping(results: Mapping[str, LinkResult]) -> dict[str, SuccessEntry | FailureEntry]:
    """Return the results as they are sent, by their links and in their order."""
    return {link: _entry(result) for link, result in results.items()}


def _entry(result: LinkResult) -> SuccessEntry | FailureEntry:
    if isinstance(result, Converted):
        return SuccessEntry(
            short_link=result.short_link, long_link=result.long_link, product=result.product
        )
    return FailureEntry(fail_code=result.fail_code)
