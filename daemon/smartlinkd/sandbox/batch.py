"""`batchCustomLink`: the call that the portal accepts, and the rows that it answers. Pure.

`read_batch` accepts the call of the portal's own page alone. `target_of` is stricter than the real
portal, where a sloppy client earns money for the wrong account: it accepts a product's link in the
canonical form without a query, and no short link. `row_of` makes the answer for one link.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from smartlinkd.sandbox.session import affiliate_id
from smartlinkd.validation import describe_errors

ROWS: Final = 5
"""Links that the portal takes in one submit, as its page in this market does."""

SUB_IDS: Final = 5

OK, UNKNOWN, INVALID_LINK, INVALID_SUB_ID = 0, 1, 2, 3
"""The portal's failCodes; INVALID_SUB_ID is the first of five, one for each place."""

_QUERY = (
    "query batchGetCustomLink($linkParams: [CustomLinkParam!], $sourceCaller: SourceCaller) {"
    " batchCustomLink(linkParams: $linkParams, sourceCaller: $sourceCaller) {"
    " shortLink longLink failCode } }"
)
_CANONICAL_PATH = re.compile(r"/product/([0-9]{1,15})/([0-9]{1,15})")
_SUB_ID = re.compile(r"[A-Za-z0-9]{1,50}")
_CODE_LENGTH = 10
_STAMPED_PATH = 3
"""Every third item's short link carries `?lp=aff`, as the portal's own sometimes does."""

_OTHER_ACCOUNT = "999"
_FAIL_CODES = {
    "unknown": UNKNOWN,
    "invalid_link": INVALID_LINK,
    "invalid_sub_id": INVALID_SUB_ID,
    "code_99": 99,
}

Json = dict[str, Any]
SubId = Literal["subId1", "subId2", "subId3", "subId4", "subId5"]
Target = tuple[int, int]
"""A product's shop id and item id."""


class Malformed(Exception):  # noqa: N818 - says what the call is
    """The portal's GraphQL layer refuses the call. The text is for the caller."""


class LinkParam(BaseModel):
    """One link that is to become the account's own. An empty or missing sub-id is not set."""

    model_config = ConfigDict(extra="forbid", strict=True)
    originalLink: str  # noqa: N815 - the call's own names
    advancedLinkParams: dict[SubId, str] = Field(default_factory=dict)  # noqa: N815 - likewise

    def places(self) -> tuple[str, ...]:
        """Return the five sub-ids in order, "" where nothing is set."""
        return tuple(self.advancedLinkParams.get(place, "") for place in get_args(SubId))


class _Variables(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    linkParams: list[LinkParam] = Field(min_length=1, max_length=ROWS)  # noqa: N815 - its own names
    sourceCaller: Literal["CUSTOM_LINK_CALLER"]  # noqa: N815 - likewise


class _Call(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    operationName: Literal["batchGetCustomLink"]  # noqa: N815 - the protocol's own name
    query: str
    variables: _Variables


@dataclass(frozen=True)
class Origins:
    """The origins of the three listeners, without a slash at the end."""

    portal: str
    shop: str
    short: str

    @property
    def open_api(self) -> str:
        """The Open API's one address."""
        return f"{self.portal}/graphql"

    @property
    def estimate(self) -> str:
        """The estimate service, as a template with {item_id}."""
        return f"{self.portal}/estimate/{{item_id}}"


def read_batch(body: bytes) -> list[LinkParam]:
    """Return the links of a call.

    Raises:
        Malformed: the portal's own page would not send it, or it has too many links.
    """
    try:
        call = _Call.model_validate_json(body)
    except ValidationError as error:
        raise Malformed(describe_errors(error, whole="the body")) from None
    if " ".join(call.query.split()) != _QUERY:
        raise Malformed("The document is not that of the portal's page.")
    return call.variables.linkParams


def target_of(link: str, origins: Origins) -> Target | None:
    """Return the product of a link that the portal accepts, else None."""
    canonical = _CANONICAL_PATH.fullmatch(link.removeprefix(origins.shop))
    if canonical is None or not link.startswith(origins.shop):
        return None
    return int(canonical[1]), int(canonical[2])


def row_of(
    param: LinkParam, target: Target | None, *, account: str, origins: Origins, behaviour: str
) -> Json | None:
    """Return the row for one link; None for a row that the portal has lost."""
    sub_ids = param.places()
    for place, sub_id in enumerate(sub_ids):
        if sub_id and not _SUB_ID.fullmatch(sub_id):
            return _failed_row(INVALID_SUB_ID + place)
    if target is None:
        return _failed_row(INVALID_LINK)
    if behaviour in _FAIL_CODES:
        return _failed_row(_FAIL_CODES[behaviour])
    shop_id, item_id = target
    good = _good_row(shop_id, item_id, account, sub_ids, origins)
    strangers = long_link(shop_id, item_id, _OTHER_ACCOUNT, sub_ids, origins)
    rows = {
        "": good,
        "null": None,
        "null_code": good | {"failCode": None},
        "no_short_link": good | {"shortLink": ""},
        "other_account": good | {"longLink": strangers},
        "other_item": _good_row(shop_id, item_id + 1, account, sub_ids, origins),
    }
    return rows[behaviour]


def long_link(
    shop_id: int, item_id: int, account: str, sub_ids: Sequence[str], origins: Origins
) -> str:
    """Return the affiliate link of an account: it says who earns, and for which sub-ids."""
    return (
        f"{origins.shop}/universal-link/product/{shop_id}/{item_id}?utm_campaign=-"
        f"&utm_content={'-'.join(sub_ids)}&utm_medium=affiliates"
        f"&utm_source=an_{affiliate_id(account)}&utm_term=sandbox"
    )


def short_code(long: str) -> str:
    """Return the code of the short link for a long one. It is always the same."""
    digest = hashlib.sha256(long.encode()).digest()
    return b64encode(digest, altchars=b"xy")[:_CODE_LENGTH].decode()


def _good_row(
    shop_id: int, item_id: int, account: str, sub_ids: Sequence[str], origins: Origins
) -> Json:
    long = long_link(shop_id, item_id, account, sub_ids, origins)
    stamp = "" if item_id % _STAMPED_PATH else "?lp=aff"
    return {
        "shortLink": f"{origins.short}/{short_code(long)}{stamp}",
        "longLink": long,
        "failCode": OK,
    }


def _failed_row(code: int) -> Json:
    return {"shortLink": "", "longLink": "", "failCode": code}
