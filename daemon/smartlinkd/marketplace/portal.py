"""The portal, driven through a tab of the owner's own session.

`submit_form` fills in the custom link page's form, presses its button, and reads the answer that
the page receives. `submit_fetch` makes the same call from the page: a choice of the owner's, never
a fallback (docs/decisions/059-human-checks.md). `read_product_…` read product data. After an error
of loading or submitting, the tab must not be used again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs

import trio
from pydantic import JsonValue

from smartlinkd.browser.capture import CapturedResponse
from smartlinkd.browser.errors import ContextLost, NavigationFailed
from smartlinkd.browser.page import Page
from smartlinkd.marketplace import links
from smartlinkd.marketplace.answers import UNKNOWN_ROW, FailCode, Row, parse_links_answer
from smartlinkd.marketplace.errors import (
    AccountFrozen,
    MarketplaceFailed,
    PortalChanged,
    PortalDown,
    PortalError,
    PortalSilent,
    ProductsDown,
    ProductsRefused,
    SessionLost,
)
from smartlinkd.marketplace.markets import Market
from smartlinkd.marketplace.page_state import (
    FORM_SCRIPT,
    POLL_INTERVAL,
    PageState,
    check_frames,
    check_settled,
    check_url,
    load,
    read_state,
    resolve_redirect,
    sign_responses,
    text_in,
)
from smartlinkd.marketplace.products import ProductData, parse_portal_product
from smartlinkd.marketplace.signs import (
    LOGIN_STATUSES,
    SIGN_PATHS,
)
from smartlinkd.marketplace.urls import parts_of
from smartlinkd.marketplace.values import to_dict, to_int
from smartlinkd.untrusted import first_line

logger = logging.getLogger(__name__)

# Seconds, all of these.
FORM_TIMEOUT = 15.0  # for the page's script to build the form
FROZEN_AFTER = 2.0  # until a disabled form is no longer one that is being built
BUTTON_TIMEOUT = 5.0  # for the form to accept its values
ANSWER_TIMEOUT = 30.0  # for the answer to a submit
PRODUCT_TIMEOUT = 8.0  # for the answer to a product reading; no link waits for it much longer
_HUNG_AFTER = 8.0  # without an answer of the page to `read_state`, while a response is due
_STATE_INTERVAL = 0.5  # between two calls of `read_state`, while a response is due
_SCRIPT_EXTRA = 3.0  # more than a script's own deadline, before the browser counts as hung

MAX_ANSWER = 1024 * 1024  # characters; fifty rows have forty thousand

_LINKS_PAGE = "/offer/custom_link"
_GRAPHQL = "/api/v3/gql"
_LINKS_CALL = f"{_GRAPHQL}?q=batchCustomLink"
_PRODUCT_PAGE = "/offer/product_offer/"
_PRODUCT_CALL = "/api/v3/offer/product"

LINKS_QUERY = """\
query batchGetCustomLink($linkParams: [CustomLinkParam!], $sourceCaller: SourceCaller) {
  batchCustomLink(linkParams: $linkParams, sourceCaller: $sourceCaller) {
    shortLink
    longLink
    failCode
  }
}"""

CALL_SCRIPT = files(__package__).joinpath("portal_call.js").read_text("utf-8")


async def open_links_page(page: Page, market: Market) -> None:
    """Load the custom link page and wait until its form can be used.

    Raises:
        HumanCheck: the portal asks for a human check.
        SessionLost: it wants a login.
        AccountFrozen: the form stays disabled.
        PortalDown: the page came with an error.
        PortalChanged: there is no form on it.
        BrowserFailed: a call to the tab failed.
    """
    check_frames(page, market)
    await load(page, market.portal_url + _LINKS_PAGE)
    disabled_since, state = None, PageState()
    with trio.move_on_after(FORM_TIMEOUT):
        while True:
            state = await read_state(page, market)
            state.check()
            if state.form == "ready":
                return
            if state.form == "none":
                disabled_since = None
            elif disabled_since is None:
                disabled_since = trio.current_time()
            elif trio.current_time() - disabled_since >= FROZEN_AFTER:
                raise AccountFrozen
            await trio.sleep(POLL_INTERVAL)
    check_url(await page.url())
    if state.hang is not None:
        raise state.hang
    raise PortalChanged(f"no form on its custom link page within {FORM_TIMEOUT:g} seconds")


async def submit_form(
    page: Page,
    market: Market,
    products: Sequence[links.Product],
    sub_ids: Sequence[str],
) -> list[Row]:
    """Make links for `products` by the form. Returns a row for each, in their order.

    `open_links_page` has opened the page, which may have had submits since. If GraphQL refuses the
    whole call, each row is -1. Raises as `open_links_page`, and `PortalSilent` if there is no
    answer in time.
    """
    check_frames(page, market)  # before the form script closes dialogs
    urls: JsonValue = [product.url(market) for product in products]
    async with page.responses(_GRAPHQL) as responses, sign_responses(page) as signs:
        try:
            result = await page.evaluate(
                FORM_SCRIPT,
                "submit",
                urls,
                list(sub_ids),
                BUTTON_TIMEOUT * 1000,
                deadline=BUTTON_TIMEOUT + _SCRIPT_EXTRA,
            )
        except ContextLost:
            await check_settled(page, market)
            raise
        pressed = to_dict(result)
        if pressed.get("pressed") is not True:
            await check_settled(page, market)  # the form may have gone because the page has
            raise _not_pressed(pressed)
        response = await _wait_for_response(page, market, responses, _is_links_call, ANSWER_TIMEOUT)
        response = await resolve_redirect(response, signs)
    if response.lost:
        raise await _broken_off(page, market, response, "to a submit")
    return _rows(response, products, sub_ids, market)


async def submit_fetch(
    page: Page,
    market: Market,
    products: Sequence[links.Product],
    sub_ids: Sequence[str],
) -> list[Row]:
    """Make links as `submit_form`, by a call from the page."""
    url, body = market.portal_url + _LINKS_CALL, _links_body(products, sub_ids, market)
    answer = await _call(page, market, "POST", url, body=body, timeout_s=ANSWER_TIMEOUT)
    return _rows(answer, products, sub_ids, market)


async def read_product_fetch(
    page: Page,
    market: Market,
    product: links.Product,
    *,
    default_cap: int,
) -> ProductData | None:
    """Read the portal's data of a product, None without any, by a call from any of its pages.

    Leaves the page as it was, so several readings may use it at once.

    Raises:
        HumanCheck: the portal asks for a human check.
        ProductsRefused: it refuses the data, or wants a login for it.
        PortalDown: it answered with an error.
        PortalSilent: there is no answer in time.
        BrowserFailed: a call to the tab failed.
    """
    url = f"{market.portal_url}{_PRODUCT_CALL}?item_id={product.item_id}"
    with _login_refuses_products():
        answer = await _call(page, market, "GET", url, body=None, timeout_s=PRODUCT_TIMEOUT)
        return parse_portal_product(answer, asked=product, market=market, default_cap=default_cap)


async def read_product_page(
    page: Page,
    market: Market,
    product: links.Product,
    *,
    default_cap: int,
) -> ProductData | None:
    """Read the same by opening the product's page, from the call that the page makes.

    The tab leaves the links page, so it must not be one that submits links. Raises as
    `read_product_fetch`, and `ProductsDown` if the page does not come: no other product's would.
    """
    with _login_refuses_products():
        async with (
            page.responses(_PRODUCT_CALL, method="GET") as responses,
            sign_responses(page) as signs,
        ):
            response = await _product_response(page, market, product, responses)
            response = await resolve_redirect(response, signs)
        if response.lost:
            raise await _broken_off(page, market, response, "about a product")
        return parse_portal_product(response, asked=product, market=market, default_cap=default_cap)


@contextmanager
def _login_refuses_products() -> Iterator[None]:
    # Only a submit of links decides that the session is lost.
    try:
        yield
    except SessionLost:
        raise ProductsRefused("the portal wants a login for it") from None


async def _product_response(
    page: Page,
    market: Market,
    product: links.Product,
    responses: trio.MemoryReceiveChannel[CapturedResponse],
) -> CapturedResponse:
    """Open the product's page, and return the response to its call."""
    try:
        check_frames(page, market)
        await load(page, f"{market.portal_url}{_PRODUCT_PAGE}{product.item_id}")
        return await _wait_for_response(
            page, market, responses, lambda url: _is_about(url, product), PRODUCT_TIMEOUT
        )
    except (PortalDown, NavigationFailed) as failed:
        raise ProductsDown(str(failed)) from None


def _not_pressed(result: dict[str, Any]) -> MarketplaceFailed:
    """Return the error for a form that could not be used."""
    why = first_line(text_in(result, "why")) or "its form gave no result"
    if why == "disabled":
        return AccountFrozen()
    hint = first_line(text_in(result, "hint"))
    return PortalChanged(f"on its custom link page, {why}" + (f' ("{hint}")' if hint else ""))


async def _broken_off(
    page: Page, market: Market, response: CapturedResponse, to: str
) -> MarketplaceFailed:
    """Return the error for an answer without a body. Raises as `check_settled`."""
    await check_settled(page, market)
    if response.status in LOGIN_STATUSES:
        return SessionLost()
    return PortalDown(f"its answer {to} broke off ({response.lost})")


async def _wait_for_response(
    page: Page,
    market: Market,
    responses: trio.MemoryReceiveChannel[CapturedResponse],
    is_wanted: Callable[[str], bool],
    timeout_s: float,
) -> CapturedResponse:
    """Return the first response whose URL is wanted.

    Raises what the tab shows instead, as soon as it shows it, `CallTimedOut` for a page that hangs,
    and `PortalSilent` when the time is up.
    """
    last_sign_of_life = trio.current_time()
    with trio.move_on_after(timeout_s):
        while True:
            with trio.move_on_after(_STATE_INTERVAL):
                while not is_wanted((response := await responses.receive()).url):
                    last_sign_of_life = trio.current_time()
                return response
            state = await read_state(page, market)
            state.check()
            if state.hang is None:
                last_sign_of_life = trio.current_time()
            elif trio.current_time() - last_sign_of_life > _HUNG_AFTER:
                raise state.hang
    check_frames(page, market)
    check_url(await page.url())
    raise PortalSilent(f"nothing within {timeout_s:g} seconds")


async def _call(
    page: Page, market: Market, method: str, url: str, *, body: str | None, timeout_s: float
) -> CapturedResponse:
    """Make a call in the page's session, and return its answer.

    A page that leaves ends its calls, so where it went is looked at before the call is blamed. A
    page that has left before makes no call: the answer has the page's URL.
    """
    check_frames(page, market)
    async with sign_responses(page) as signs:
        try:
            result = to_dict(
                await page.evaluate(
                    CALL_SCRIPT,
                    method,
                    url,
                    body,
                    timeout_s * 1000,
                    MAX_ANSWER,
                    list(SIGN_PATHS),
                    deadline=timeout_s + _SCRIPT_EXTRA,
                )
            )
        except ContextLost:
            await check_settled(page, market)
            raise
        if failed := text_in(result, "failed"):
            if failed == "TimeoutError":
                raise PortalSilent(f"nothing to a call within {timeout_s:g} seconds")
            await check_settled(page, market)
            if to_int(result.get("status")) in LOGIN_STATUSES:
                raise SessionLost
            raise PortalDown(f"the call to it broke off ({first_line(failed)})")
        answer = CapturedResponse(
            status=to_int(result.get("status")) or 0,
            url=text_in(result, "url"),
            mime_type=text_in(result, "mimeType"),
            body=text_in(result, "body"),
        )
        return await resolve_redirect(answer, signs)


def _links_body(products: Sequence[links.Product], sub_ids: Sequence[str], market: Market) -> str:
    """Return the request body of `batchCustomLink`. An empty sub-id keeps its number free."""
    advanced = {f"subId{n}": value for n, value in enumerate(sub_ids, start=1) if value}
    return json.dumps(
        {
            "operationName": "batchGetCustomLink",
            "query": LINKS_QUERY,
            "variables": {
                "linkParams": [
                    {"originalLink": product.url(market), "advancedLinkParams": advanced}
                    for product in products
                ],
                "sourceCaller": "CUSTOM_LINK_CALLER",
            },
        }
    )


def _rows(
    response: CapturedResponse,
    products: Sequence[links.Product],
    sub_ids: Sequence[str],
    market: Market,
) -> list[Row]:
    try:
        rows = parse_links_answer(response, asked=products, sub_ids=sub_ids, market=market)
    except PortalError as error:
        logger.warning(
            "the portal refused a submit of %d links: %s (code %s)",
            len(products),
            error.detail,
            error.code,
        )
        return [UNKNOWN_ROW] * len(products)
    for product, row in zip(products, rows, strict=True):
        if row.fail_code is not FailCode.SUCCESS:
            logger.info("the portal made no link for %s: its code %s", product, row.portal_code)
    return rows


# The page makes other calls to the same paths.


def _is_links_call(url: str) -> bool:
    parts = parts_of(url)
    return parts.path == _GRAPHQL and "batchCustomLink" in parse_qs(parts.query).get("q", ())


def _is_about(url: str, product: links.Product) -> bool:
    parts = parts_of(url)
    item_ids = parse_qs(parts.query).get("item_id")
    return parts.path == _PRODUCT_CALL and item_ids == [str(product.item_id)]
