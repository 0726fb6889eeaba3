"""The portal, driven through a tab of the owner's own session.

There are two ways to have links made. `submit_form` does what the owner would do by hand: it fills
the custom link page's form, presses its button, and reads the answer that the page itself receives.
`submit_fetch` makes the page's call from the page. The second has been refused where the button
worked, and five refusals led to a human check: so it is a choice of the owner's, never a fallback.

Everything is read from what comes back: the rules are in `answers`, `products` and `session`. What
each function leaves behind is its tab, on the portal's page; after any error the tab is of no use.
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

from smartlinkd.browser.errors import ContextLost, NavigationFailed
from smartlinkd.marketplace import links
from smartlinkd.marketplace.answers import UNKNOWN_ROW, FailCode, Row, parse_links_answer
from smartlinkd.marketplace.errors import (
    AccountFrozen,
    HumanCheck,
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
    LOOK_EVERY,
    Seen,
    arrive,
    check,
    check_beside,
    check_settled,
    check_url,
    detours_of,
    look,
    seen_through,
    text_in,
)
from smartlinkd.marketplace.portal_page import Answer, PageResponse, PortalPage
from smartlinkd.marketplace.products import ProductData, parse_portal_product
from smartlinkd.marketplace.signs import (
    NO_PERMISSION,
    SIGN_PATHS,
)
from smartlinkd.marketplace.values import parts_of, to_dict, to_int
from smartlinkd.untrusted import first_line

logger = logging.getLogger(__name__)

# Seconds.
FORM_WAIT = 15.0  # for the page's script to build the form
FROZEN_AFTER = 2.0  # for which a disabled form may be one that is still being built
BUTTON_WAIT = 5.0  # for the form to take what was filled in
ANSWER_WAIT = 30.0  # for the answer to a submit
PRODUCT_WAIT = 8.0  # for the answer to a product reading: no link waits for it much longer
_HUNG_AFTER = 8.0  # of looks in vain, while an answer is due
_GLANCE_EVERY = 0.5  # while an answer is due
_BESIDE_A_CHECK = 2.0  # for an answer that may be on its way while a check is shown
_GRACE = 3.0  # more than a script's own deadline before the browser is taken for hung

MAX_ANSWER = 1024 * 1024  # characters of an answer; fifty rows have forty thousand

_LINKS_PAGE = "/offer/custom_link"
_GRAPHQL = "/api/v3/gql"
_LINKS_CALL = f"{_GRAPHQL}?q=batchCustomLink"
_PRODUCT_PAGE = "/offer/product_offer/"
_PRODUCT_CALL = "/api/v3/offer/product"

_LINKS_QUERY = """\
query batchGetCustomLink($linkParams: [CustomLinkParam!], $sourceCaller: SourceCaller) {
  batchCustomLink(linkParams: $linkParams, sourceCaller: $sourceCaller) {
    shortLink
    longLink
    failCode
  }
}"""

_CALL = files(__package__).joinpath("portal_call.js").read_text("utf-8")


async def open_links_page(page: PortalPage, market: Market) -> None:
    """Load the custom link page and wait until its form can be used.

    Raises `SessionLost`, `HumanCheck`, `AccountFrozen`, `PortalDown` or `PortalChanged`.
    """
    check_beside(page, market)
    await arrive(page, market.portal_url + _LINKS_PAGE)
    disabled_since, seen = None, Seen()
    with trio.move_on_after(FORM_WAIT):
        while True:
            seen = await look(page, market)
            check(seen)
            if seen.form == "ready":
                return
            if seen.form == "none":
                disabled_since = None
            elif disabled_since is None:
                disabled_since = trio.current_time()
            elif trio.current_time() - disabled_since >= FROZEN_AFTER:
                raise AccountFrozen
            await trio.sleep(LOOK_EVERY)
    check_url(await page.url())
    if seen.hangs is not None:
        raise seen.hangs
    raise PortalChanged(f"no form on its custom link page within {FORM_WAIT:g} seconds")


async def submit_form(
    page: PortalPage, market: Market, products: Sequence[links.Product], sub_ids: Sequence[str]
) -> list[Row]:
    """Links for `products` by the form: one row each, in their order.

    `page` has been opened by `open_links_page`, and may have seen submits before. Raises as that
    does, and `PortalSilent`; a refusal of the whole call by GraphQL is a row of -1 for each.
    """
    check_beside(page, market)  # before its dialogs are closed
    urls: JsonValue = [product.url(market) for product in products]
    async with page.responses(_GRAPHQL) as responses, detours_of(page) as detours:
        try:
            result = await page.evaluate(
                FORM_SCRIPT,
                "submit",
                urls,
                list(sub_ids),
                BUTTON_WAIT * 1000,
                deadline=BUTTON_WAIT + _GRACE,
            )
        except ContextLost:
            await check_settled(page, market)
            raise
        pressed = to_dict(result)
        if pressed.get("pressed") is not True:
            await check_settled(page, market)  # the form may have gone because the page has
            raise _not_pressed(pressed)
        response = await seen_through(await _answer(page, market, responses), detours)
    if response.lost:
        raise await _broken_off(page, market, response, "to a submit")
    return _rows(response, products, sub_ids, market)


async def submit_fetch(
    page: PortalPage, market: Market, products: Sequence[links.Product], sub_ids: Sequence[str]
) -> list[Row]:
    """As `submit_form`, by the page's own call made from the page."""
    url, body = market.portal_url + _LINKS_CALL, _body(products, sub_ids, market)
    answer = await _call(page, market, "POST", url, body=body, wait=ANSWER_WAIT)
    return _rows(answer, products, sub_ids, market)


async def read_product_fetch(
    page: PortalPage, market: Market, product: links.Product, *, default_cap: int
) -> ProductData:
    """What the portal knows of a product, by a call from any of its pages.

    Leaves the page as it was, so several readings may use it at once. Raises `ProductsRefused`,
    `HumanCheck`, `NotThere`, `PortalDown` or `PortalSilent`.
    """
    url = f"{market.portal_url}{_PRODUCT_CALL}?item_id={product.item_id}"
    with _login_refuses_products():
        answer = await _call(page, market, "GET", url, body=None, wait=PRODUCT_WAIT)
    return parse_portal_product(answer, asked=product, market=market, default_cap=default_cap)


async def read_product_page(
    page: PortalPage, market: Market, product: links.Product, *, default_cap: int
) -> ProductData:
    """As `read_product_fetch`, by opening the product's page and reading the call it makes.

    Takes the tab elsewhere: it is not to be one that submits links.
    """
    async with (
        page.responses(_PRODUCT_CALL, method="GET") as responses,
        detours_of(page) as detours,
    ):
        with _login_refuses_products():
            response = await _product_call(page, market, product, responses)
            response = await seen_through(response, detours)
            if response.lost:
                raise await _broken_off(page, market, response, "about a product")
    return parse_portal_product(response, asked=product, market=market, default_cap=default_cap)


@contextmanager
def _login_refuses_products() -> Iterator[None]:
    """A login in the way of product data costs that alone: the links decide whether the session
    lives."""
    try:
        yield
    except SessionLost:
        raise ProductsRefused("the portal wants a login for it") from None


async def _product_call(
    page: PortalPage,
    market: Market,
    product: links.Product,
    responses: trio.MemoryReceiveChannel[PageResponse],
) -> PageResponse:
    """Open the product's page; the answer to its call. Raises `ProductsDown` for a page that does
    not come: the next product's would not, either."""
    try:
        check_beside(page, market)
        await arrive(page, f"{market.portal_url}{_PRODUCT_PAGE}{product.item_id}")
        with trio.move_on_after(PRODUCT_WAIT):
            return await _first(page, market, responses, lambda url: _asks_for(url, product))
    except (PortalDown, NavigationFailed) as failed:
        raise ProductsDown(str(failed)) from None
    check_beside(page, market)
    check_url(await page.url())
    raise PortalSilent(f"no product data within {PRODUCT_WAIT:g} seconds")


def _not_pressed(result: dict[str, Any]) -> MarketplaceFailed:
    """The error for a form that could not be used."""
    why = first_line(text_in(result, "why")) or "its form gave no result"
    if why == "disabled":
        return AccountFrozen()
    hint = first_line(text_in(result, "hint"))
    return PortalChanged(f"on its custom link page, {why}" + (f' ("{hint}")' if hint else ""))


async def _answer(
    page: PortalPage, market: Market, responses: trio.MemoryReceiveChannel[PageResponse]
) -> PageResponse:
    """The page's answer to a submit; the tab may go to a login or a check instead."""
    with trio.move_on_after(ANSWER_WAIT):
        return await _first(page, market, responses, _is_links_call)
    check_beside(page, market)
    check_url(await page.url())
    raise PortalSilent(f"nothing to the submitted links within {ANSWER_WAIT:g} seconds")


async def _broken_off(
    page: PortalPage, market: Market, response: PageResponse, to: str
) -> MarketplaceFailed:
    """The error for an answer without a body: the page may have left because of it."""
    await check_settled(page, market)
    if response.status in NO_PERMISSION:
        return SessionLost()
    return PortalDown(f"its answer {to} broke off ({response.lost})")


async def _first(
    page: PortalPage,
    market: Market,
    responses: trio.MemoryReceiveChannel[PageResponse],
    is_ours: Callable[[str], bool],
) -> PageResponse:
    """The first response that, by its URL, is the one that is waited for. Raises what the tab shows
    instead, as soon as it shows it, and `CallTimedOut` for a page that hangs.

    A check beside the page takes nobody the links that were made: it is raised when none have come
    a while later.
    """
    shown_at = trio.current_time()
    wanted: HumanCheck | None = None
    with trio.CancelScope() as patience:
        while True:
            with trio.move_on_after(_GLANCE_EVERY):
                while not is_ours((response := await responses.receive()).url):
                    shown_at = trio.current_time()
                return response
            if wanted is not None:
                continue
            try:
                seen = await look(page, market)
            except HumanCheck as shown:
                wanted = shown
                patience.deadline = trio.current_time() + _BESIDE_A_CHECK
                continue
            check(seen)
            if seen.hangs is None:
                shown_at = trio.current_time()
            elif trio.current_time() - shown_at > _HUNG_AFTER:
                raise seen.hangs
    assert wanted is not None  # noqa: S101 - there is no end of patience without it
    raise wanted


async def _call(
    page: PortalPage, market: Market, method: str, url: str, *, body: str | None, wait: float
) -> PageResponse:
    """A call in the page's session, and its answer.

    A page that leaves ends its calls, so where it went is asked before the call is blamed. When it
    has left before, the call is not made: the answer is the URL where the page is now.
    """
    check_beside(page, market)
    async with detours_of(page) as detours:
        try:
            result = to_dict(
                await page.evaluate(
                    _CALL,
                    method,
                    url,
                    body,
                    wait * 1000,
                    MAX_ANSWER,
                    list(SIGN_PATHS),
                    deadline=wait + _GRACE,
                )
            )
        except ContextLost:
            await check_settled(page, market)
            raise
        if failed := text_in(result, "failed"):
            if failed == "TimeoutError":
                raise PortalSilent(f"nothing to a call within {wait:g} seconds")
            await check_settled(page, market)
            if to_int(result.get("status")) in NO_PERMISSION:
                raise SessionLost
            raise PortalDown(f"the call to it broke off ({first_line(failed)})")
        answer = Answer(
            status=to_int(result.get("status")) or 0,
            url=text_in(result, "url"),
            mime_type=text_in(result, "mimeType"),
            body=text_in(result, "body"),
        )
        return await seen_through(answer, detours)


def _body(products: Sequence[links.Product], sub_ids: Sequence[str], market: Market) -> str:
    """The request body of `batchCustomLink`. An empty sub-id keeps its number free."""
    advanced = {f"subId{n}": value for n, value in enumerate(sub_ids, start=1) if value}
    return json.dumps(
        {
            "operationName": "batchGetCustomLink",
            "query": _LINKS_QUERY,
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
    response: PageResponse,
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


def _is_links_call(url: str) -> bool:
    """Whether a response is the one about links: the page makes other calls to the same path."""
    parts = parts_of(url)
    return parts.path == _GRAPHQL and "batchCustomLink" in parse_qs(parts.query).get("q", ())


def _asks_for(url: str, product: links.Product) -> bool:
    """Whether a response is the one about `product`: the page makes other calls like it."""
    parts = parts_of(url)
    return parts.path == _PRODUCT_CALL and parse_qs(parts.query).get("item_id") == [
        str(product.item_id)
    ]
