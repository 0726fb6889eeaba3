"""The answer to `batchCustomLink`, row by row.

Rows come in the order of the request. One that is missing is an unknown error, and one too many
means that the portal answered another question than ours. A row earns only with a real short link:
a success without one, or with a long link in its place (which pays less), is no success, nor is one
whose long link leads to another product than was asked for, or has a sale counted under other
sub-ids: it may be the answer to an earlier submit, which the page has tried again by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from smartlinkd.marketplace import links
from smartlinkd.marketplace.errors import (
    HumanCheck,
    MarketplaceFailed,
    PortalChanged,
    PortalDown,
    PortalError,
    SessionLost,
)
from smartlinkd.marketplace.markets import Market
from smartlinkd.marketplace.portal_page import PageResponse
from smartlinkd.marketplace.signs import NO_PERMISSION, RISK_CONTROL, read_json
from smartlinkd.marketplace.values import is_web_address, to_dict, to_int

# What the portal says of a link in its `failCode`; 0 or nothing is success.
PORTAL_SUCCESS = 0
PORTAL_INVALID_LINK = 2


class FailCode(IntEnum):
    """The `failCode` that a client is given (affiliate service, section 7)."""

    SUCCESS = 0
    UNKNOWN = -1
    INVALID_LINK = 10
    NO_PERMISSION = 40300


def fail_code_of(code: int | None) -> FailCode:
    """Our code for the portal's `failCode` of one row.

    3 to 7 are wrong sub-ids, which cannot happen after our own check of them; they and every number
    not known here are unknown errors rather than a guess.
    """
    if code is None or code == PORTAL_SUCCESS:
        return FailCode.SUCCESS
    if code == PORTAL_INVALID_LINK:
        return FailCode.INVALID_LINK
    return FailCode.UNKNOWN


logger = logging.getLogger(__name__)

# Sends the reader to a landing page instead of the product.
_LANDING = "lp=aff"
# Enough of the portal's own words to search a log for.
_MAX_DETAIL = 300


@dataclass(frozen=True, slots=True)
class Row:
    """The result for one link.

    On success (`fail_code` 0) `short_link` is a URL and `long_link` a URL or None; otherwise both
    are None. `portal_code` is what the portal said, for the log; None when it said nothing.
    """

    short_link: str | None
    long_link: str | None
    fail_code: FailCode
    portal_code: int | None = None


UNKNOWN_ROW = Row(None, None, FailCode.UNKNOWN)


def parse_links_answer(
    response: PageResponse,
    *,
    asked: Sequence[links.Product],
    sub_ids: Sequence[str],
    market: Market,
) -> list[Row]:
    """A row for each of `asked` out of the portal's answer to a submit of their links with these
    sub-ids.

    Raises `SessionLost`, `HumanCheck`, `PortalDown`; `PortalError` when GraphQL refused the whole
    call, and `PortalChanged` for more rows than links.
    """
    answer = read_json(response)
    rows = to_dict(answer.get("data")).get("batchCustomLink")
    if not rows and answer.get("errors"):
        raise _refusal(*graphql_error(answer["errors"]))
    if not isinstance(rows, list):
        if "data" not in answer:
            raise PortalDown("its answer has neither data nor errors")
        rows = []  # null data: it took the call and has nothing to say of any link
    if len(rows) > len(asked):
        raise PortalChanged(f"it answered for {len(rows)} links, and was asked for {len(asked)}")
    read = [_row(row, product, sub_ids, market) for row, product in zip(rows, asked, strict=False)]
    made_none = not any(row.short_link for row in read)
    if made_none and any(row.portal_code == RISK_CONTROL for row in read):
        raise HumanCheck
    return read + [UNKNOWN_ROW] * (len(asked) - len(read))


def graphql_error(errors: object) -> tuple[int | None, str]:
    """The code (None when it has none) and message of a GraphQL answer's first error."""
    first = errors[0] if isinstance(errors, list) and errors else errors
    error = first if isinstance(first, dict) else {"message": first}
    code = to_int(to_dict(error.get("extensions")).get("code"))
    # On one line, whatever it was: it ends up in the log.
    return code, " ".join(str(error.get("message", "no message")).split())[:_MAX_DETAIL]


def _refusal(code: int | None, message: str) -> MarketplaceFailed:
    """GraphQL carries the portal's own refusals too, under their usual numbers (risk control's was
    seen by `read_json`)."""
    return SessionLost() if code in NO_PERMISSION else PortalError(message, code)


def clean_short_link(value: object, market: Market) -> str | None:
    """A usable affiliate short link, without the landing page's parameter; None when it is none."""
    if not isinstance(value, str) or not is_web_address(value):
        return None
    if isinstance(links.parse(value, market), links.Product):
        return None  # a long link
    bare, hash_mark, fragment = value.partition("#")
    path, _, query = bare.partition("?")
    kept = "&".join(field for field in query.split("&") if field and field != _LANDING)
    return path + (f"?{kept}" if kept else "") + hash_mark + fragment


def _row(row: object, asked: links.Product, sub_ids: Sequence[str], market: Market) -> Row:
    if not isinstance(row, dict):
        return UNKNOWN_ROW
    portal_code, fail_code = _code(row)
    if fail_code is not FailCode.SUCCESS:
        return Row(None, None, fail_code, portal_code)
    short_link = clean_short_link(row.get("shortLink"), market)
    long_link = row.get("longLink")
    if not isinstance(long_link, str) or not is_web_address(long_link):
        long_link = None
    if short_link is None or short_link == long_link:
        return Row(None, None, FailCode.UNKNOWN, portal_code)
    if long_link is not None and not _answers(long_link, asked, sub_ids, market):
        return Row(None, None, FailCode.UNKNOWN, portal_code)
    return Row(short_link, long_link, fail_code, portal_code)


def _answers(long_link: str, asked: links.Product, sub_ids: Sequence[str], market: Market) -> bool:
    """Whether it is to the product that was asked for, with these sub-ids, as far as it says so."""
    leads_to = links.parse(long_link, market)
    if isinstance(leads_to, links.Product) and leads_to.item_id != asked.item_id:
        return False
    if links.sub_ids_in(long_link) in (None, links.joined_sub_ids(sub_ids)):
        return True
    logger.warning(
        "the portal gave a link of other sub-ids than were asked for: it is not given out"
    )
    return False


def _code(row: dict[str, Any]) -> tuple[int | None, FailCode]:
    said = row.get("failCode")
    code = to_int(said)
    if said is not None and code is None:
        return None, FailCode.UNKNOWN  # neither a number nor nothing
    return code, fail_code_of(code)
