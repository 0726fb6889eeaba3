"""`batchCustomLink`: what the portal demands of the call, and the rows it answers.

Pure rules. `read_batch` takes the call apart and refuses what the portal's GraphQL layer refuses;
`row_of` decides one link. Both are as strict as the real one is known to be, and stricter where a
sloppy client earns the wrong account money: only the canonical product form without a query, or a
short link that is known to end on a product, is taken.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from smartlinkd.sandbox import graphql
from smartlinkd.sandbox.faults import Fault, Play
from smartlinkd.sandbox.session import affiliate_id
from smartlinkd.sandbox.shortlinks import product_behind
from smartlinkd.sandbox.validation import first_fault

OPERATION: Final = "batchGetCustomLink"
SOURCE_CALLER: Final = "CUSTOM_LINK_CALLER"
ROW_FIELDS: Final = ("shortLink", "longLink", "failCode")
SUB_IDS: Final = 5

OK, UNKNOWN, INVALID_LINK, INVALID_SUB_ID = 0, 1, 2, 3
"""The portal's failCodes; INVALID_SUB_ID is the first of five, one for each place."""

_CANONICAL_PATH = re.compile(r"/product/([0-9]{1,15})/([0-9]{1,15})")
_SUB_ID = re.compile(r"[A-Za-z0-9]{1,50}")
_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_CODE_LENGTH = 10
_STAMPED_PATH = 3
"""Every third item's short link carries `?lp=aff`, as the portal's own sometimes does."""

_OTHER_ACCOUNT = "999"
_TYPES = {"linkParams": "[CustomLinkParam!]", "sourceCaller": "SourceCaller"}

Json = dict[str, Any]


class SubIds(BaseModel):
    """The five places; an empty or missing one is not set."""

    model_config = ConfigDict(extra="forbid", strict=True)
    subId1: str | None = None  # noqa: N815 - the call's own names
    subId2: str | None = None  # noqa: N815
    subId3: str | None = None  # noqa: N815
    subId4: str | None = None  # noqa: N815
    subId5: str | None = None  # noqa: N815

    def places(self) -> tuple[str, ...]:
        """The five values in order, "" where nothing is set."""
        places = (self.subId1, self.subId2, self.subId3, self.subId4, self.subId5)
        return tuple(value or "" for value in places)


class LinkParam(BaseModel):
    """One link to be turned into the account's own."""

    model_config = ConfigDict(extra="forbid", strict=True)
    originalLink: str  # noqa: N815 - the call's own names
    advancedLinkParams: SubIds = Field(default_factory=SubIds)  # noqa: N815


class _Variables(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    linkParams: list[LinkParam]  # noqa: N815 - the call's own names
    sourceCaller: str  # noqa: N815


class Call(BaseModel):
    """The body of a GraphQL call: read strictly, whatever its operation."""

    model_config = ConfigDict(extra="forbid", strict=True)
    operationName: str | None = None  # noqa: N815 - the protocol's own name
    query: str
    variables: Json = Field(default_factory=dict)


@dataclass(frozen=True)
class Origins:
    """Where the three listeners are reached, without a slash at the end."""

    portal: str
    shop: str
    short: str


def read_batch(body: bytes, *, most_rows: int) -> tuple[graphql.Field, list[LinkParam]]:
    """The selected field and the links of a call. Raises `graphql.Malformed`."""
    try:
        call = Call.model_validate_json(body)
    except ValidationError as error:
        raise graphql.Malformed(first_fault(error)) from None
    if call.operationName != OPERATION:
        raise graphql.Malformed(f'Unknown operation named "{call.operationName}".')
    document = graphql.parse(call.query)
    asked = document.selected[0]
    if document.name != OPERATION or len(document.selected) != 1:
        raise graphql.Malformed(f"The document must hold the operation {OPERATION} alone.")
    if asked.name != "batchCustomLink":
        raise graphql.Malformed(f'Cannot query field "{asked.name}" on type "Query".')
    _check_arguments(document, asked)
    graphql.pick(asked.selected, dict.fromkeys(ROW_FIELDS))  # raises for an unknown field
    try:
        variables = _Variables.model_validate(
            {
                "linkParams": graphql.argument(asked, "linkParams", call.variables),
                "sourceCaller": graphql.argument(asked, "sourceCaller", call.variables),
            }
        )
    except ValidationError as error:
        raise graphql.Malformed(first_fault(error)) from None
    if variables.sourceCaller != SOURCE_CALLER:
        raise graphql.Malformed(f"sourceCaller: {variables.sourceCaller} is no SourceCaller.")
    if not 1 <= len(variables.linkParams) <= most_rows:
        raise graphql.Malformed(f"linkParams: must be 1 to {most_rows} links.")
    return asked, variables.linkParams


def target_of(link: str, origins: Origins) -> tuple[int, int] | None:
    """(shop id, item id) of a link that the portal takes, else None."""
    if link.startswith(f"{origins.short}/"):
        return product_behind(link.removeprefix(f"{origins.short}/"))
    canonical = _CANONICAL_PATH.fullmatch(link.removeprefix(origins.shop))
    if canonical is None or not link.startswith(origins.shop):
        return None
    return int(canonical[1]), int(canonical[2])


def row_of(
    param: LinkParam,
    *,
    account: str,
    origins: Origins,
    fault: Callable[[int], Fault | None],
) -> Json | None:
    """The row for one link. `fault` says for an item id what is to go wrong with it, if anything.

    A row of None is what the portal sends for a row that it has lost.
    """
    sub_ids = param.advancedLinkParams.places()
    for place, sub_id in enumerate(sub_ids):
        if sub_id and not _SUB_ID.fullmatch(sub_id):
            return _failed(INVALID_SUB_ID + place)
    target = target_of(param.originalLink, origins)
    if target is None:
        return _failed(INVALID_LINK)
    shop_id, item_id = target
    good = _good(shop_id, item_id, account, sub_ids, origins)
    played = fault(item_id)
    if played is None:
        return good
    return _spoilt(played.play, good, _good(shop_id, item_id + 1, account, sub_ids, origins))


def long_link(
    shop_id: int, item_id: int, account: str, sub_ids: Sequence[str], origins: Origins
) -> str:
    """The stamped link of `account`: who earns, and for which sub-ids."""
    return (
        f"{origins.shop}/universal-link/product/{shop_id}/{item_id}?utm_campaign=-"
        f"&utm_content={'-'.join(sub_ids)}&utm_medium=affiliates"
        f"&utm_source=an_{affiliate_id(account)}&utm_term=sandbox"
    )


def short_code(long: str) -> str:
    """The code under which a long link is made short: the same one every time."""
    number = int.from_bytes(hashlib.sha256(long.encode()).digest()[:16])
    digits = []
    for _ in range(_CODE_LENGTH):
        number, digit = divmod(number, len(_BASE62))
        digits.append(_BASE62[digit])
    return "".join(digits)


def _good(
    shop_id: int, item_id: int, account: str, sub_ids: Sequence[str], origins: Origins
) -> Json:
    long = long_link(shop_id, item_id, account, sub_ids, origins)
    stamp = "" if item_id % _STAMPED_PATH else "?lp=aff"
    return {
        "shortLink": f"{origins.short}/{short_code(long)}{stamp}",
        "longLink": long,
        "failCode": OK,
    }


def _failed(code: int) -> Json:
    return {"shortLink": "", "longLink": "", "failCode": code}


def _spoilt(play: Play, good: Json, other_item: Json) -> Json | None:
    codes = {
        Play.FAIL_1: UNKNOWN,
        Play.FAIL_2: INVALID_LINK,
        Play.FAIL_3: INVALID_SUB_ID,
        Play.FAIL_99: 99,
    }
    if play in codes:
        return _failed(codes[play])
    if play is Play.NULL_CODE:
        return good | {"failCode": None}
    if play is Play.NO_SHORT_LINK:
        return good | {"shortLink": ""}
    if play is Play.OTHER_ACCOUNT:
        stranger = re.sub(r"an_[0-9]+", f"an_{affiliate_id(_OTHER_ACCOUNT)}", str(good["longLink"]))
        return good | {"longLink": stranger}
    if play is Play.OTHER_ITEM:
        return other_item
    return None


def _check_arguments(document: graphql.Document, asked: graphql.Field) -> None:
    if set(asked.arguments) != set(_TYPES):
        raise graphql.Malformed("batchCustomLink takes linkParams and sourceCaller.")
    for name, value in asked.arguments.items():
        if not isinstance(value, graphql.Variable):
            raise graphql.Malformed(f"{name}: must be a variable.")
        declared = document.variables.get(value.name, "")
        if declared.rstrip("!") != _TYPES[name]:
            raise graphql.Malformed(f"Variable ${value.name} must be of type {_TYPES[name]}.")
