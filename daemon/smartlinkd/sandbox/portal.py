"""The portal's listener: its pages and their calls, `open_api.py`'s APIs, the control endpoints.

A submit is checked in the portal's own order: the session, the CSRF token, the program, the shape
of the call, and then each link. A fault happens where the real one would: a lost session before
anything is read, a wrong answer after the rows have been made.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

import trio
from pydantic import BaseModel, ConfigDict, Field
from quart import Response, render_template, request

from smartlinkd.http_server import GuardedQuart
from smartlinkd.sandbox.batch import (
    ROWS,
    LinkParam,
    Malformed,
    Target,
    read_batch,
    row_of,
    short_code,
    target_of,
)
from smartlinkd.sandbox.faults import Point
from smartlinkd.sandbox.open_api import add_apis
from smartlinkd.sandbox.products import portal_offer, product_of
from smartlinkd.sandbox.session import account_of
from smartlinkd.sandbox.state import Delays, SandboxState, Submit
from smartlinkd.sandbox.web import (
    HTML,
    address_of,
    answer_to_call,
    as_json,
    body_as,
    graphql_errors,
    new_app,
    raw_body,
    redirect_to,
    unfinished,
)

PROGRAM: Final = "1"
"""The value of the header affiliate-program-type that stands for links."""

_LOST_BY_PAGES = {"lost": "login_redirect", "lost_softly": "login_script", "human_check": "captcha"}
_LOST_BY_CALLS = {"lost": "401", "lost_softly": "logged_out"}
"""A session's fault shows otherwise at pages than at calls."""


class FaultBody(BaseModel):
    """The fault to switch on."""

    model_config = ConfigDict(extra="forbid")
    fault: str
    times: int | None = Field(default=None, ge=1)
    account: str | None = None


def portal_app(state: SandboxState) -> GuardedQuart:
    """Return the app of the portal's listener."""
    app = new_app(state)
    _add_pages(app, state)
    _add_calls(app, state)
    add_apis(app, state)
    _add_control(app, state)
    return app


def _add_pages(app: GuardedQuart, state: SandboxState) -> None:
    @app.get("/")
    async def home() -> Response:
        return redirect_to("/offer/custom_link")

    @app.get("/offer/custom_link")
    async def custom_link() -> Response:
        state.counters["page custom_link"] += 1
        return await _page(state, "custom_link.html", rows=ROWS)

    @app.get("/offer/product_offer/<int:item_id>")
    async def product_offer(item_id: int) -> Response:
        state.counters["page product_offer"] += 1
        return await _page(state, "product_offer.html", item_id=item_id)


async def _page(state: SandboxState, template: str, **facts: Any) -> Response:
    """Return a page of the signed-in account, with its fault if it has one."""
    behaviour = "login_redirect"
    if account := account_of(request.cookies):
        behaviour = state.due(Point.SESSION, account=account)
        behaviour = behaviour or state.due(Point.PAGE, account=account)
    behaviour = _LOST_BY_PAGES.get(behaviour, behaviour)
    if behaviour in ("login_redirect", "captcha", "traffic", "check_in_json", "reset"):
        return await answer_to_call(behaviour, state, None)
    if behaviour == "500":
        return Response("<!doctype html><title>500</title><h1>500</h1>", status=500)
    if behaviour == "slow":
        await state.hold_back()
    login = address_of("login_redirect", state)
    page = await render_template(template, behaviour=behaviour, login_url=login, **facts)
    if behaviour == "endless":
        return unfinished(page[: page.index("<main")], HTML, state, is_cut=False)
    return Response(page, content_type=HTML)


def _add_calls(app: GuardedQuart, state: SandboxState) -> None:
    @app.get("/api/v3/offer/product")
    async def offer() -> Response:
        state.counters["product read"] += 1
        account = await _signed_in(state)
        if isinstance(account, Response):
            return account
        given = request.args.get("item_id", "")
        if not (given.isascii() and given.isdigit()):
            return as_json({"code": 10001, "msg": "item_id: a number is due", "data": None})
        await trio.sleep(state.delays.product_ms / 1000)
        product = product_of(int(given))
        good = {"code": 0, "msg": "success", "data": portal_offer(product, state.origins.shop)}
        items = [product.item_id]
        behaviour = state.due(Point.PRODUCT, account=account, items=items)
        return await answer_to_call(behaviour, state, good)

    @app.post("/api/v3/gql")
    async def gql() -> Response:
        state.counters["submit"] += 1
        account = await _signed_in(state)
        if isinstance(account, Response):
            return account
        return _refusal() or await _submit(state, account)


async def _signed_in(state: SandboxState) -> str | Response:
    """Return the account of a call, or the answer to a call without a good session."""
    account, behaviour = account_of(request.cookies), "401"
    if account and not (behaviour := state.due(Point.SESSION, account=account)):
        return account
    return await answer_to_call(_LOST_BY_CALLS.get(behaviour, behaviour), state, None)


def _refusal() -> Response | None:
    """Return the answer to a call that the portal's own page would not send; None for others."""
    if request.headers.get("csrf-token") != request.cookies["csrftoken"]:
        return as_json({"code": 403, "msg": "csrf-token does not match"}, status=403)
    if request.headers.get("affiliate-program-type") != PROGRAM:
        return as_json({"code": 400, "msg": "affiliate-program-type is missing"}, status=400)
    if request.mimetype != "application/json":
        return as_json({"code": 400, "msg": "content-type must be application/json"}, status=400)
    if request.args.get("q") != "batchCustomLink":
        return as_json({"code": 404, "msg": "q: no such query"}, status=404)
    return None


async def _submit(state: SandboxState, account: str) -> Response:
    try:
        params = read_batch(await raw_body())
    except Malformed as error:
        state.counters["submit malformed"] += 1
        return as_json(graphql_errors(str(error), 10010))
    originals = tuple(param.originalLink for param in params)
    sub_ids = tuple(dict.fromkeys(param.places() for param in params))
    with state.submitting(Submit(account, originals, sub_ids)):
        await trio.sleep(state.delays.submit_ms / 1000)
        targets = [target_of(link, state.origins) for link in originals]
        rows = [
            _row(state, account, param, target)
            for param, target in zip(params, targets, strict=True)
        ]
        items = [target[1] for target in targets if target is not None]
        behaviour = state.due(Point.SUBMIT, account=account, items=items)
        shown = {"short_rows": rows[:-1], "null_rows": None}.get(behaviour, rows)
        return await answer_to_call(behaviour, state, {"data": {"batchCustomLink": shown}})


def _row(
    state: SandboxState, account: str, param: LinkParam, target: Target | None
) -> dict[str, Any] | None:
    items = [] if target is None else [target[1]]
    behaviour = state.due(Point.ROW, account=account, items=items) if items else ""
    row = row_of(param, target, account=account, origins=state.origins, behaviour=behaviour)
    if row and row["shortLink"]:
        state.keep_short_link(short_code(row["longLink"]), row["longLink"])
    return row


def _add_control(app: GuardedQuart, state: SandboxState) -> None:
    """Add the control endpoints.

    POST   /_sandbox/faults  {"fault": name, "times": n | null, "account": "…" | null}
    DELETE /_sandbox/faults  all are switched off; magic items stay what they are
    POST   /_sandbox/delay   {"submit_ms": n, "product_ms": n}; one that is not given is 0
    GET    /_sandbox/log     counters, submits per account, the last submits
    """

    @app.post("/_sandbox/faults")
    async def arm() -> Response:
        body = await body_as(FaultBody)
        state.arm(body.fault, times=body.times, account=body.account)
        return as_json({"ok": True})

    @app.delete("/_sandbox/faults")
    async def clear() -> Response:
        state.armed.clear()
        return as_json({"ok": True})

    @app.post("/_sandbox/delay")
    async def delay() -> Response:
        state.delays = await body_as(Delays)
        return as_json({"ok": True})

    @app.get("/_sandbox/log")
    async def log() -> Response:
        return as_json(
            {
                "ok": True,
                "counters": dict(sorted(state.counters.items())),
                "accounts": {account: asdict(seen) for account, seen in state.accounts.items()},
                "submits": [asdict(submit) for submit in state.submits],
            }
        )
