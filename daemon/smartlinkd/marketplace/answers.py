"""Read the answer to `batchCustomLink`, row by row.

Rows come in the order of the request. A missing row is an unknown error, and an additional one
fails the whole answer. A row fails if it has no short link, or if its link is of another product or
has other sub-ids than asked for: the page may have repeated an earlier submit.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from smartlinkd.marketplace import links
from smartlinkd.marketplace.errors import (
    HumanCheck,
    PortalChanged,
    PortalDown,
    PortalError,
    SessionLost,
)
from smartlinkd.marketplace.markets import Market
from smartlinkd.marketplace.signs import LOGIN_STATUSES, RISK_CONTROL, read_json
from smartlinkd.marketplace.urls import is_web_address, parts_of
from smartlinkd.marketplace.values import to_dict, to_int

if TYPE_CHECKING:
    from smartlinkd.browser.capture import CapturedResponse


class FailCode(IntEnum):
    """The `failCode` in our answers ("Converting" in docs/api.md)."""

    SUCCESS = 0
    UNKNOWN = -1
    INVALID_LINK = 10
    NO_PERMISSION = 40300


logger = logging.getLogger(__name__)

_INVALID_LINK = 2  # the portal's own `failCode`
# This parameter leads to a landing page instead of the product.
_LANDING = "lp=aff"
_MAX_DETAIL = 300  # characters of the portal's message that are logged


@dataclass(frozen=True, slots=True)
class Row:
    """The result for one link.

    Attributes:
        short_link: a URL on success (`fail_code` 0), else None.
        long_link: a URL or None on success, else None.
        portal_code: the portal's own code, for the log; None if it gave none.
    """

    short_link: str | None
    long_link: str | None
    fail_code: FailCode
    portal_code: int | None = None


UNKNOWN_ROW = Row(None, None, FailCode.UNKNOWN)


def parse_links_answer(
    response: CapturedResponse,
    *,
    asked: Sequence[links.Product],
    sub_ids: Sequence[str],
    market: Market,
) -> list[Row]:
    """Return a row for each of `asked`, from the answer to a submit of their links.

    Raises:
        SessionLost, HumanCheck: as `read_json`, or a code in the answer says so.
        PortalDown: as `read_json`, or it has neither data nor errors.
        PortalError: GraphQL refused the whole call.
        PortalChanged: there are more rows than links.
    """
    answer = read_json(response)
    rows = to_dict(answer.get("data")).get("batchCustomLink")
    if not rows and answer.get("errors"):
        code, message = graphql_error(answer["errors"])
        # Risk control's code was seen by `read_json`.
        raise SessionLost() if code in LOGIN_STATUSES else PortalError(message, code)
    if not isinstance(rows, list):
        if "data" not in answer:
            raise PortalDown("its answer has neither data nor errors")
        rows = []  # null data: the call was accepted, and nothing is said of any link
    if len(rows) > len(asked):
        raise PortalChanged(f"it answered for {len(rows)} links, and was asked for {len(asked)}")
    read = [_row(row, product, sub_ids, market) for row, product in zip(rows, asked, strict=False)]
    made_none = not any(row.short_link for row in read)
    if made_none and any(row.portal_code == RISK_CONTROL for row in read):
        raise HumanCheck
    return read + [UNKNOWN_ROW] * (len(asked) - len(read))


def graphql_error(errors: object) -> tuple[int | None, str]:
    """Return the code (None if it has none) and the message of a GraphQL answer's first error."""
    first = errors[0] if isinstance(errors, list) and errors else errors
    error = first if isinstance(first, dict) else {"message": first}
    code = to_int(to_dict(error.get("extensions")).get("code"))
    # On one line, for the log.
    return code, " ".join(str(error.get("message", "no message")).split())[:_MAX_DETAIL]


def clean_short_link(value: object, market: Market) -> str | None:
    """Return a short link without the landing page's parameter, or None if `value` is none."""
    if not isinstance(value, str) or not is_web_address(value):
        return None
    if isinstance(links.parse(value, market), links.Product):
        return None  # a long link
    parts = parts_of(value)
    kept = "&".join(field for field in parts.query.split("&") if field and field != _LANDING)
    return parts._replace(query=kept).geturl()


def _row(row: object, asked: links.Product, sub_ids: Sequence[str], market: Market) -> Row:
    if not isinstance(row, dict):
        return UNKNOWN_ROW
    portal_code, fail_code = _read_code(row)
    if fail_code is not FailCode.SUCCESS:
        return Row(None, None, fail_code, portal_code)
    short_link = clean_short_link(row.get("shortLink"), market)
    long_link = row.get("longLink")
    if not isinstance(long_link, str) or not is_web_address(long_link):
        long_link = None
    if short_link is None or short_link == long_link:
        return Row(None, None, FailCode.UNKNOWN, portal_code)
    if long_link is not None and not _is_of(long_link, asked, sub_ids, market):
        return Row(None, None, FailCode.UNKNOWN, portal_code)
    return Row(short_link, long_link, fail_code, portal_code)


def _is_of(long_link: str, asked: links.Product, sub_ids: Sequence[str], market: Market) -> bool:
    """True if a long link is of the product and the sub-ids, as far as it names them."""
    leads_to = links.parse(long_link, market)
    if isinstance(leads_to, links.Product) and leads_to.item_id != asked.item_id:
        return False
    if links.sub_ids_in(long_link) in (None, links.joined_sub_ids(sub_ids)):
        return True
    logger.warning(
        "the portal gave a link of other sub-ids than were asked for: it is not given out"
    )
    return False


def _read_code(row: dict[str, Any]) -> tuple[int | None, FailCode]:
    """Return the portal's code for a row, and ours.

    Its codes 3 to 7 are wrong sub-ids, which our own check rules out.
    """
    given = row.get("failCode")
    code = to_int(given)
    if code == _INVALID_LINK:
        return code, FailCode.INVALID_LINK
    is_success = code == 0 or given is None
    return code, FailCode.SUCCESS if is_success else FailCode.UNKNOWN
