"""The shop's listener: product pages in every form of their address, and the login page.

Signing in here is for a person who looks at the sandbox with a browser of their own: any number and
any password make the cookies that the daemon would be given.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

from quart import Response, redirect, render_template, request

from smartlinkd.errors import Invalid
from smartlinkd.http_server import GuardedQuart
from smartlinkd.sandbox.products import product_of
from smartlinkd.sandbox.session import DEFAULT_ACCOUNT, cookies_of, session_of
from smartlinkd.sandbox.state import State
from smartlinkd.sandbox.web import Answer, new_app

PRODUCT_PATHS: Final = re.compile(
    r"(?:universal-link/)?(?:[^/]*-i\.(?P<shop1>[0-9]{1,15})\.(?P<item1>[0-9]{1,15})"
    r"|[^/]+/(?P<shop2>[0-9]{1,15})/(?P<item2>[0-9]{1,15}))/?"
)
"""The forms of a product's address: slug, `product/…`, a shop's name, and both under universal."""


def shop_app(state: State) -> GuardedQuart:
    """The app of the shop's listener."""
    app = new_app(state)

    @app.get("/")
    async def home() -> str:
        return await render_template("shop.html", product=None)

    @app.get("/buyer/login")
    async def login() -> str:
        state.counters["login page"] += 1
        return await render_template(
            "login.html", next=_next(state), default_account=DEFAULT_ACCOUNT
        )

    @app.post("/buyer/login")
    async def sign_in() -> Answer:
        cookies = cookies_of((await request.form).get("loginKey", ""))
        if session_of(cookies) is None:
            raise Invalid("loginKey: the account is a number of at most 15 digits")
        answer = redirect(_next(state), code=303)
        for name, value in cookies.items():
            answer.set_cookie(name, value, httponly=name != "csrftoken", samesite="Lax")
        return answer

    @app.get("/<path:path>")
    async def product(path: str) -> Answer:
        found = PRODUCT_PATHS.fullmatch(path)
        if found is None:
            return Response(await render_template("shop.html", product=None), status=404)
        state.counters["product page"] += 1
        item_id = int(found["item1"] or found["item2"])
        return Response(await render_template("shop.html", product=product_of(item_id)))

    return app


def _next(state: State) -> str:
    """Where to go after signing in: one of the sandbox's own pages, nowhere else."""
    wanted = request.args.get("next", "")
    parts = urlsplit(wanted)
    ours = f"{parts.scheme}://{parts.netloc}" in (state.origins.portal, state.origins.shop)
    return wanted if ours else f"{state.origins.portal}/offer/custom_link"
