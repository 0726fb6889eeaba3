"""The short-link listener: sends whatever `shortlinks` says for a code.

Two counters matter more than the answers: `dlink opened` (a login link was followed, which must
never happen) and `short link with cookie` (the session went to a host that has no use for it).
"""

from __future__ import annotations

import html
import json
import re

from quart import Response, request

from smartlinkd.http_server import GuardedQuart
from smartlinkd.sandbox.shortlinks import BIG_BODY, CODES, Hop, Way, hop_of
from smartlinkd.sandbox.state import State
from smartlinkd.sandbox.web import new_app

_TABLE = {row.code for row in CODES}
_PAGES = {
    Way.META: '<meta http-equiv="refresh" content="0; url={to}">',
    Way.SCRIPT: "<script>window.location.replace({script});</script>",
    Way.VARIABLE: "<script>var u = {script}; location.href = u;</script>",
    Way.CANONICAL: '<link rel="canonical" href="{to}">',
    Way.OG_URL: '<meta property="og:url" content="{to}">',
    Way.LOGIN: '<link rel="canonical" href="{to}"></head><body><input type="password">',
    Way.UNKNOWN: "<title>Mở ứng dụng</title>",
}
_LOGIN_LINK = re.compile(r"dlink.*")


def shorts_app(state: State) -> GuardedQuart:
    """The app of the short-link listener."""
    app = new_app(state)

    @app.get("/<path:code>")
    async def short_link(code: str) -> Response:
        _count(state, code)
        made = state.made.get(code)
        if made is not None:
            return _send(Hop(Way.FOUND, made))
        hop = hop_of(code, shop_url=state.origins.shop, short_url=state.origins.short)
        if hop.way is Way.SLOW:
            await state.hold_back()
            return _send(Hop(Way.GONE))
        return _send(hop)

    return app


def _count(state: State, code: str) -> None:
    state.counters["short link"] += 1
    if code in _TABLE:
        state.counters[f"short link {code}"] += 1
    if _LOGIN_LINK.fullmatch(code):
        state.counters["dlink opened"] += 1
    if request.cookies:
        state.counters["short link with cookie"] += 1


def _send(hop: Hop) -> Response:
    if hop.way in (Way.FOUND, Way.MOVED):
        headers = {"Location": hop.to} if hop.to else {}
        return Response("", status=int(hop.way.value), headers=headers)
    if hop.way is Way.REFRESH:
        return _page("", headers={"Refresh": f"0; url={hop.to}"})
    if hop.way is Way.BIG:
        return _page("<!--" + "." * BIG_BODY + "-->")
    if hop.way in _PAGES:
        to, script = html.escape(hop.to), json.dumps(hop.to)
        return _page(_PAGES[hop.way].format(to=to, script=script))
    return _page("<title>Liên kết không tồn tại</title>", status=int(hop.way.value))


def _page(head: str, *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(
        f"<!doctype html><html><head><meta charset=utf-8>{head}</head><body></body></html>",
        status=status,
        headers=headers,
        content_type="text/html; charset=utf-8",
    )
