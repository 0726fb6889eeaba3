"""The portal's listener: the owner's pages, and the calls those pages make.

The order in which a submit is looked at is the portal's own: the session, the forgery token, the
program, the shape of the call, and only then each link. A fault comes in where the real one would:
a lost session before anything is read, a spoilt answer after the rows have been made.
"""

from __future__ import annotations

import hmac
from typing import Any

import trio
from quart import Response, render_template, request

from smartlinkd.http_server import GuardedQuart
from smartlinkd.sandbox import graphql
from smartlinkd.sandbox.answers import portal_offer
from smartlinkd.sandbox.batch import LinkParam, read_batch, row_of, short_code, target_of
from smartlinkd.sandbox.control import add_control
from smartlinkd.sandbox.estimate import add_estimate
from smartlinkd.sandbox.faults import FAULTS, Fault, Play, Point
from smartlinkd.sandbox.open_api import add_open_api
from smartlinkd.sandbox.products import PRODUCTS, product_of
from smartlinkd.sandbox.session import Session, session_of
from smartlinkd.sandbox.shortlinks import CODES
from smartlinkd.sandbox.spoil import endless, graphql_errors, spoilt
from smartlinkd.sandbox.state import State
from smartlinkd.sandbox.web import Answer, as_json, login_url, new_app, raw_body, to_check, to_login

PROGRAM = "1"
"""The one value of the header affiliate-program-type that stands for links."""


def portal_app(state: State) -> GuardedQuart:
    """The app of the portal's listener."""
    app = new_app(state)
    _add_pages(app, state)
    _add_calls(app, state)
    add_open_api(app, state)
    add_estimate(app, state)
    add_control(app, state)
    return app


def _add_pages(app: GuardedQuart, state: State) -> None:
    @app.get("/")
    async def guide() -> str:
        return await render_template("guide.html", faults=FAULTS, codes=CODES, products=PRODUCTS)

    @app.get("/offer/custom_link")
    async def custom_link() -> Answer:
        state.counters["page custom_link"] += 1
        return await _page(state, "custom_link.html", rows=state.rows)

    @app.get("/offer/product_offer/<int:item_id>")
    async def product_offer(item_id: int) -> Answer:
        state.counters["page product_offer"] += 1
        return await _page(state, "product_offer.html", item_id=item_id)


async def _page(state: State, template: str, **facts: Any) -> Answer:
    """A page of the signed-in account, or what its account gets instead."""
    session = session_of(request.cookies)
    if session is None:
        return to_login(state)
    play = _page_play(state, session)
    if play is not None and (instead := await _instead_of_page(play, state)):
        return instead
    if play is Play.SLOW:
        await state.hold_back()
    page = await render_template(
        template,
        behaviour="" if play is None else play.value,
        login_url=login_url(state),
        **facts,
    )
    if play is Play.ENDLESS:
        return endless(page[: page.index("<main")], state)
    return Response(page, content_type="text/html; charset=utf-8")


async def _instead_of_page(play: Play, state: State) -> Answer | None:
    if play in (Play.LOST, Play.TO_LOGIN):
        return to_login(state)
    if play in (Play.HUMAN_CHECK, Play.CAPTCHA):
        return to_check(state, "captcha")
    if play is Play.TRAFFIC:
        return to_check(state, "traffic")
    if play is Play.BROKEN_500:
        return Response("<!doctype html><title>500</title><h1>500</h1>", status=500)
    if play in (Play.CHECK_IN_JSON, Play.RESET):
        return await spoilt(play, state, None)
    return None


def _page_play(state: State, session: Session) -> Play | None:
    fault = state.due(Point.SESSION, account=session.account)
    fault = fault or state.due(Point.PAGE, account=session.account)
    if fault is None:
        return None
    return Play.LOGIN_BY_SCRIPT if fault.play is Play.LOST_SOFTLY else fault.play


def _add_calls(app: GuardedQuart, state: State) -> None:
    @app.get("/api/v3/offer/product")
    async def offer() -> Response:
        state.counters["product read"] += 1
        session = await _signed_in(state)
        if isinstance(session, Response):
            return session
        asked = request.args.get("item_id", "")
        if not (asked.isascii() and asked.isdigit()):
            return as_json({"code": 10001, "msg": "item_id: a number is due", "data": None})
        await trio.sleep(state.delays.product_ms / 1000)
        product = product_of(int(asked))
        good = {"code": 0, "msg": "success", "data": portal_offer(product, state.origins.shop)}
        fault = state.due(Point.PRODUCT, account=session.account, items=[product.item_id])
        return as_json(good) if fault is None else await spoilt(fault.play, state, good)

    @app.post("/api/v3/gql")
    async def gql() -> Response:
        state.counters["submit"] += 1
        session = await _signed_in(state)
        if isinstance(session, Response):
            return session
        return _forged(session) or await _submit(state, session)


async def _signed_in(state: State) -> Session | Response:
    """The session of a call, or what it is answered for want of one."""
    session = session_of(request.cookies)
    if session is None:
        return await spoilt(Play.REFUSED_401, state, None)
    fault = state.due(Point.SESSION, account=session.account)
    if fault is None:
        return session
    instead = {Play.LOST: Play.REFUSED_401, Play.LOST_SOFTLY: Play.LOGGED_OUT}
    return await spoilt(instead.get(fault.play, fault.play), state, None)


def _forged(session: Session) -> Response | None:
    """The refusal of a call that the portal's own page would not have sent."""
    token = request.headers.get("csrf-token", "")
    if not hmac.compare_digest(token.encode(), session.csrf_token.encode()):
        return as_json({"code": 403, "msg": "csrf-token does not match"}, status=403)
    if request.headers.get("affiliate-program-type") != PROGRAM:
        return as_json({"code": 400, "msg": "affiliate-program-type is missing"}, status=400)
    if request.mimetype != "application/json":
        return as_json({"code": 400, "msg": "content-type must be application/json"}, status=400)
    if request.args.get("q") != "batchCustomLink":
        return as_json({"code": 404, "msg": "q: no such query"}, status=404)
    return None


async def _submit(state: State, session: Session) -> Response:
    try:
        asked, params = read_batch(await raw_body(), most_rows=state.rows)
    except graphql.Malformed as error:
        state.counters["submit malformed"] += 1
        return as_json(graphql_errors(str(error), 10010))
    state.counters["links"] += len(params)
    sub_ids = [param.advancedLinkParams.places() for param in params]
    with state.submits.submit(
        session.account, [param.originalLink for param in params], sub_ids
    ) as entry:
        await trio.sleep(state.delays.submit_ms / 1000)
        rows = [_row(state, session, param) for param in params]
        good = {"data": {asked.key: graphql.pick(asked.selected, rows)}}
        fault = state.due(Point.SUBMIT, account=session.account, items=_items(state, params))
        entry.outcome = "rows" if fault is None else fault.name
        if fault is None:
            return as_json(good)
        if fault.play is Play.SHORT_ROWS:
            return as_json({"data": {asked.key: good["data"][asked.key][:-1]}})
        if fault.play is Play.NULL_ROWS:
            return as_json({"data": {asked.key: None}})
        return await spoilt(fault.play, state, good)


def _row(state: State, session: Session, param: LinkParam) -> dict[str, Any] | None:
    def fault(item_id: int) -> Fault | None:
        return state.due(Point.ROW, account=session.account, items=[item_id])

    row = row_of(param, account=session.account, origins=state.origins, fault=fault)
    if row and row["shortLink"]:
        state.keep_short_link(short_code(row["longLink"]), row["longLink"])
    return row


def _items(state: State, params: list[LinkParam]) -> list[int]:
    targets = [target_of(param.originalLink, state.origins) for param in params]
    return [target[1] for target in targets if target is not None]
