"""The listeners of the shop and of the short links.

The shop has a login page, and product pages in every form of their address. Two counters of the
short links matter more than their answers: `dlink opened` (a login link was followed, which must
never happen) and `short link with cookie` (the session went to a host that has no use for it).
"""

from __future__ import annotations

import html
import json
import re
from typing import Final

from quart import Response, render_template, request

from smartlinkd.http_server import GuardedQuart
from smartlinkd.sandbox.products import product_of
from smartlinkd.sandbox.shortlinks import BIG_BODY, SLOW, Code, code_named
from smartlinkd.sandbox.state import SandboxState
from smartlinkd.sandbox.web import HTML, new_app, redirect_to

_PRODUCT_PATH: Final = re.compile(r".*(?:-i\.[0-9]+\.|/[0-9]+/)([0-9]{1,15})/?")
"""A product's address ends in two numbers, behind a slug or as folders."""


def shop_app(state: SandboxState) -> GuardedQuart:
    """Return the app of the shop's listener."""
    app = new_app(state)

    @app.get("/")
    async def home() -> str:
        return await render_template("shop.html", product=None)

    @app.get("/buyer/login")
    async def login() -> str:
        return await render_template("login.html")

    @app.get("/<path:path>")
    async def product(path: str) -> Response:
        found = _PRODUCT_PATH.fullmatch(path)
        if found is None:
            return Response(await render_template("shop.html", product=None), status=404)
        return Response(await render_template("shop.html", product=product_of(int(found[1]))))

    return app


def short_links_app(state: SandboxState) -> GuardedQuart:
    """Return the app of the short-link listener."""
    app = new_app(state)

    @app.get("/<path:code>")
    async def short_link(code: str) -> Response:
        state.counters["short link"] += 1
        row = code_named(code)
        if code.startswith("dlink"):
            state.counters["dlink opened"] += 1
        if request.cookies:
            state.counters["short link with cookie"] += 1
        if long_link := state.made.get(code):
            return redirect_to(long_link)
        if code == SLOW:
            await state.hold_back()
        return _answer(row, state)

    return app


def _answer(code: Code, state: SandboxState) -> Response:
    to = code.address(shop_url=state.origins.shop, short_url=state.origins.short)
    if code.status in (301, 302):
        return Response("", status=code.status, headers={"Location": to} if to else {})
    filler = "." * BIG_BODY if "{filler}" in code.head else ""
    head = code.head.format(to=html.escape(to), script=json.dumps(to), filler=filler)
    return Response(
        f"<!doctype html><html><head><meta charset=utf-8>{head}</head><body></body></html>",
        status=code.status,
        headers={"Refresh": f"0; url={to}"} if code.is_refresh else {},
        content_type=HTML,
    )
