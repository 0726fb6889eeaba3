"""The affiliate Open API: signed GraphQL calls, answered 200 whatever is wrong with them.

The signature is the plain SHA-256 of AppId, timestamp, raw body and secret, in that order, with
nothing between; it is checked over the bytes that came, so a client that signs one serialisation
and sends another is refused. Credentials and their fates are fixed values of the sandbox.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from typing import Any, Final

from pydantic import ValidationError
from quart import Response, request

from smartlinkd.http_server import GuardedQuart
from smartlinkd.sandbox import graphql
from smartlinkd.sandbox.answers import open_api_node
from smartlinkd.sandbox.batch import SUB_IDS, Call, long_link, short_code, target_of
from smartlinkd.sandbox.faults import Play, Point
from smartlinkd.sandbox.products import product_of
from smartlinkd.sandbox.spoil import graphql_errors, spoilt
from smartlinkd.sandbox.state import State
from smartlinkd.sandbox.web import as_json, raw_body

PATH: Final = "/graphql"
APP_ID: Final = "18000000001"
SECRET: Final = "SANDBOXSANDBOXSANDBOXSANDBOXSAND"  # noqa: S105 - the sandbox's, known to all
LIMITED_APP_ID: Final = "18000010030"
REFUSED_APP_ID: Final = "18000010035"

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
_SUB_ID = re.compile(r"[A-Za-z0-9]{0,50}")
_OFFER_ARGUMENTS = {"itemId", "shopId", "keyword", "page", "limit", "sortType", "listType"}


class _Refused(Exception):  # noqa: N818 - as `smartlinkd.errors.Refused`
    """A call that is answered with an error of the API's own."""

    def __init__(self, code: int, detail: str = "") -> None:
        super().__init__(f"error [{code}]: {detail or _MESSAGES[code]}")
        self.code = code


def add_open_api(app: GuardedQuart, state: State) -> None:
    """Put `POST /graphql` on `app`."""

    @app.post(PATH)
    async def open_api() -> Response:
        state.counters["open api"] += 1
        body = await raw_body()
        try:
            app_id = _signed_by(request.headers.get("Authorization", ""), body)
            state.counters["open api signed"] += 1
            _check_fate(app_id)
            good = {"data": _answer(body, app_id, state)}
            fault = state.due(Point.OPEN_API, account=app_id)
            if fault is not None:
                _check_play(fault.play)
                return await spoilt(fault.play, state, good)
        except _Refused as refused:
            return as_json(graphql_errors(str(refused), refused.code))
        except graphql.Malformed as error:
            return as_json(graphql_errors(f"error [10010]: {error}", 10010))
        return as_json(good)


def signature(app_id: str, timestamp: int, body: bytes, secret: str) -> str:
    """The hex digest that signs `body`."""
    return hashlib.sha256(
        app_id.encode() + str(timestamp).encode() + body + secret.encode()
    ).hexdigest()


def _signed_by(header: str, body: bytes) -> str:
    found = _HEADER.fullmatch(header)
    if found is None:
        raise _Refused(10020, "Invalid Authorization Header")
    app_id, timestamp = found[1], int(found[2])
    if app_id not in (APP_ID, LIMITED_APP_ID, REFUSED_APP_ID):
        raise _Refused(10020, "Invalid Credential")
    if abs(time.time() - timestamp) > CLOCK_SKEW:
        raise _Refused(10020, "Request Expired")
    if not hmac.compare_digest(found[3], signature(app_id, timestamp, body, SECRET)):
        raise _Refused(10020)
    return app_id


def _check_fate(app_id: str) -> None:
    if app_id == LIMITED_APP_ID:
        raise _Refused(10030)
    if app_id == REFUSED_APP_ID:
        raise _Refused(10035)


def _check_play(play: Play) -> None:
    if play in (Play.BAD_SIGNATURE, Play.RATE_LIMIT, Play.NO_ACCESS):
        raise _Refused(int(play.value))


def _answer(body: bytes, app_id: str, state: State) -> dict[str, Any]:
    try:
        call = Call.model_validate_json(body)
    except ValidationError:
        raise _Refused(10010) from None
    document = graphql.parse(call.query)
    data = {}
    for asked in document.selected:
        if asked.name == "generateShortLink" and document.kind == "mutation":
            value: Any = _short_link(asked, call.variables, app_id, state)
        elif asked.name == "productOfferV2" and document.kind == "query":
            value = _offers(asked, call.variables, app_id, state)
        else:
            raise graphql.Malformed(f'Cannot query field "{asked.name}" on a {document.kind}.')
        data[asked.key] = graphql.pick(asked.selected, value)
    return data


def _short_link(
    asked: graphql.Field, variables: dict[str, Any], app_id: str, state: State
) -> dict[str, str]:
    given = graphql.argument(asked, "input", variables)
    if not isinstance(given, dict) or not set(given) <= {"originUrl", "subIds"}:
        raise _Refused(11001, "input: originUrl and subIds are due")
    target = target_of(str(given.get("originUrl")), state.origins)
    if target is None:
        raise _Refused(11001, "originUrl: invalid link")
    sub_ids = given.get("subIds") or []
    if not isinstance(sub_ids, list) or len(sub_ids) > SUB_IDS:
        raise _Refused(11001, f"subIds: at most {SUB_IDS}")
    if not all(isinstance(value, str) and _SUB_ID.fullmatch(value) for value in sub_ids):
        raise _Refused(11001, "subIds: invalid sub id")
    if fault := state.due(Point.ROW, items=[target[1]]):
        raise _Refused(11001 if fault.play is Play.FAIL_2 else 10000)
    state.counters["open api links"] += 1
    return {"shortLink": _made(state, app_id, *target, sub_ids)}


def _offers(
    asked: graphql.Field, variables: dict[str, Any], app_id: str, state: State
) -> dict[str, Any]:
    if unknown := set(asked.arguments) - _OFFER_ARGUMENTS:
        raise graphql.Malformed(f'Unknown argument "{min(unknown)}".')
    item_id = graphql.argument(asked, "itemId", variables)
    if isinstance(item_id, str) and item_id.isascii() and item_id.isdigit():
        item_id = int(item_id)  # Int64 travels as either
    if not isinstance(item_id, int) or isinstance(item_id, bool):
        raise _Refused(11001, "itemId: a number is due")
    state.counters["open api offers"] += 1
    product = product_of(item_id)
    offer_link = _made(state, app_id, product.shop_id, product.item_id, [])
    # An item whose data the portal refuses is one that this API does not list.
    listed = state.due(Point.PRODUCT, items=[item_id]) is None
    node = open_api_node(product, state.origins.shop, offer_link)
    return {
        "nodes": [node] if listed else [],
        "pageInfo": {"page": 1, "limit": 20, "hasNextPage": False},
    }


def _made(state: State, app_id: str, shop_id: int, item_id: int, sub_ids: list[str]) -> str:
    places = [*sub_ids, *[""] * (SUB_IDS - len(sub_ids))]
    long = long_link(shop_id, item_id, app_id, places, state.origins)
    code = short_code(long)
    state.keep_short_link(code, long)
    return f"{state.origins.short}/{code}"
