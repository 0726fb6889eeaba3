"""The third-party estimate service: commission figures from somebody who is not the marketplace.

It stands on the portal's listener for want of a fourth, but it is a stranger: it needs no cookie,
and counts the requests that bring one.
"""

from __future__ import annotations

import re

from quart import Response, request

from smartlinkd.http_server import GuardedQuart
from smartlinkd.sandbox.answers import estimate
from smartlinkd.sandbox.faults import Point
from smartlinkd.sandbox.products import product_of
from smartlinkd.sandbox.spoil import spoilt
from smartlinkd.sandbox.state import State
from smartlinkd.sandbox.web import as_json

_ITEM = re.compile(r"(?:/product/[0-9]+/|-i\.[0-9]+\.)([0-9]{1,15})(?:[?/#]|$)")


def add_estimate(app: GuardedQuart, state: State) -> None:
    """Put `GET /estimate?url=…` on `app`."""

    @app.get("/estimate")
    async def estimated() -> Response:
        state.counters["estimate"] += 1
        if request.cookies:
            state.counters["estimate with cookie"] += 1
        found = _ITEM.search(request.args.get("url", ""))
        if found is None:
            return as_json({"error": "url: no product link"}, status=404)
        product = product_of(int(found[1]))
        good = estimate(product, state.origins.shop)
        fault = state.due(Point.ESTIMATE, items=[product.item_id])
        return as_json(good) if fault is None else await spoilt(fault.play, state, good)
