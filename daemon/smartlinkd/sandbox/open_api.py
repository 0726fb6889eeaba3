"""The affiliate Open API, and the third-party estimate service beside it.

A call to the API is signed GraphQL, answered 200 whatever is wrong with it. The signature is the
SHA-256 of AppId, timestamp, raw body and secret, with nothing between: a client that signs one
serialisation and sends another is refused. It knows two GraphQL documents, with their values in
place; an offer's fields may be selected (docs/decisions/049-graphql-of-the-sandbox.md).
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, ValidationError
from quart import Response, request

from smartlinkd.http_server import GuardedQuart
from smartlinkd.sandbox.batch import SUB_IDS, long_link, short_code, target_of
from smartlinkd.sandbox.faults import Point
from smartlinkd.sandbox.products import estimate, open_api_node, product_of
from smartlinkd.sandbox.state import SandboxState
from smartlinkd.sandbox.web import answer_to_call, as_json, graphql_errors, raw_body

APP_ID: Final = "18000000001"
SECRET: Final = "SANDBOXSANDBOXSANDBOXSANDBOXSAND"  # noqa: S105 - the sandbox's, known to all

CLOCK_SKEW: Final = 600
"""Seconds that a call's timestamp may be off."""

_MESSAGES = {
    10000: "System error",
    10010: "Request parsing error",
    10020: "Invalid Signature",
    10030: "Rate limit exceeded",
    10035: "No access to the Affiliate Open API",
    11001: "Params Error",
}
_HEADER = re.compile(
    r"SHA256\s+Credential=([0-9]+),\s*Timestamp=([0-9]{1,12}),\s*Signature=([0-9a-f]{64})"
)
_MAKE_LINK = re.compile(
    r"mutation\{generateShortLink\(input:\{"
    r'originUrl:("(?:[^"\\]|\\.)*"),subIds:(\[[^\]]*\])\}\)\{shortLink\}\}'
)
_READ_OFFER = re.compile(r"\{productOfferV2\(itemId:([0-9]{1,18})\)\{nodes\{([A-Za-z ]+)\}\}\}")
_SUB_ID = re.compile(r"[A-Za-z0-9]{0,50}")


class _Refused(Exception):  # noqa: N818 - as `smartlinkd.errors.Refused`
    """A call that is answered with one of the API's own errors."""

    def __init__(self, code: int, detail: str = "") -> None:
        super().__init__(f"error [{code}]: {detail or _MESSAGES[code]}")
        self.code = code


class _Call(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    query: str


def add_apis(app: GuardedQuart, state: SandboxState) -> None:
    """Add `POST /graphql`, the Open API, and `GET /estimate/ITEM`."""

    @app.post("/graphql")
    async def open_api() -> Response:
        state.counters["open api"] += 1
        try:
            return await _answer(state)
        except _Refused as refused:
            return as_json(graphql_errors(str(refused), refused.code))

    @app.get("/estimate/<int:item_id>")
    async def estimated(item_id: int) -> Response:
        state.counters["estimate"] += 1
        behaviour = state.due(Point.ESTIMATE, items=[item_id])
        good = estimate(product_of(item_id), state.origins.shop)
        return await answer_to_call(behaviour, state, good)


def signature(app_id: str, timestamp: int, body: bytes, secret: str) -> str:
    """Return the hex digest that signs `body`."""
    return hashlib.sha256(
        app_id.encode() + str(timestamp).encode() + body + secret.encode()
    ).hexdigest()


def _check_signature(header: str, body: bytes) -> None:
    found = _HEADER.fullmatch(header)
    if (
        found is None
        or found[1] != APP_ID
        or abs(time.time() - int(found[2])) > CLOCK_SKEW
        or found[3] != signature(APP_ID, int(found[2]), body, SECRET)
    ):
        raise _Refused(10020)


async def _answer(state: SandboxState) -> Response:
    body = await raw_body()
    _check_signature(request.headers.get("Authorization", ""), body)
    good = {"data": _run(body, state)}
    behaviour = state.due(Point.OPEN_API, account=APP_ID)
    if behaviour.startswith("10"):  # an error of the API's own
        raise _Refused(int(behaviour))
    return await answer_to_call(behaviour, state, good)


def _run(body: bytes, state: SandboxState) -> dict[str, Any]:
    """Return the data of a call's one operation."""
    try:
        query = _Call.model_validate_json(body).query
        if found := _MAKE_LINK.fullmatch(query):
            origin, sub_ids = json.loads(found[1]), json.loads(found[2])
            return {"generateShortLink": _make_link(origin, sub_ids, state)}
        if found := _READ_OFFER.fullmatch(query):
            return {"productOfferV2": _read_offer(int(found[1]), found[2].split(), state)}
    except (ValidationError, ValueError):
        raise _Refused(10010) from None
    raise _Refused(10010, "Syntax Error, or a query that the sandbox does not know")


def _make_link(origin: str, sub_ids: list[Any], state: SandboxState) -> dict[str, str]:
    target = target_of(origin, state.origins)
    if target is None:
        raise _Refused(11001, "originUrl: invalid link")
    if len(sub_ids) > SUB_IDS or not all(
        isinstance(value, str) and _SUB_ID.fullmatch(value) for value in sub_ids
    ):
        raise _Refused(11001, "subIds: invalid sub id")
    if behaviour := state.due(Point.ROW, items=[target[1]]):
        raise _Refused(11001 if behaviour == "invalid_link" else 10000)
    state.counters["open api links"] += 1
    return {"shortLink": _short_link(state, *target, sub_ids)}


def _read_offer(item_id: int, fields: list[str], state: SandboxState) -> dict[str, Any]:
    product = product_of(item_id)
    offer_link = _short_link(state, product.shop_id, product.item_id, [])
    node = open_api_node(product, state.origins.shop, offer_link)
    if unknown := set(fields) - node.keys():
        raise _Refused(10010, f'Cannot query field "{min(unknown)}".')
    # This API does not list an item whose data the portal refuses.
    if state.due(Point.PRODUCT, items=[item_id]):
        return {"nodes": []}
    return {"nodes": [{field: node[field] for field in fields}]}


def _short_link(state: SandboxState, shop_id: int, item_id: int, sub_ids: list[str]) -> str:
    places = [*sub_ids, *[""] * (SUB_IDS - len(sub_ids))]
    long = long_link(shop_id, item_id, APP_ID, places, state.origins)
    code = short_code(long)
    state.keep_short_link(code, long)
    return f"{state.origins.short}/{code}"
