"""A tab of a few lines for the portal's adapter, which plays what it is told."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import pytest
import trio
import trio.testing
from pydantic import JsonValue

from smartlinkd.browser.capture import CapturedResponse
from smartlinkd.browser.errors import CallTimedOut
from smartlinkd.errors import UpstreamFailed
from smartlinkd.marketplace import page_state, portal
from smartlinkd.marketplace.answers import Row
from smartlinkd.marketplace.links import Product
from smartlinkd.marketplace.markets import market

if TYPE_CHECKING:
    from smartlinkd.browser.page import Page

VN = market("vn")
PAGE = "https://affiliate.shopee.vn/offer/custom_link"
LINKS_CALL = "https://affiliate.shopee.vn/api/v3/gql?q=batchCustomLink"
PRODUCT_CALL = "https://affiliate.shopee.vn/api/v3/offer/product?item_id=101"
LOGIN = "https://shopee.vn/buyer/login?next=x"
CAPTCHA = "https://shopee.vn/verify/captcha?next=x"
PRODUCTS = [Product(11, 101), Product(11, 102)]
URLS = ["https://shopee.vn/product/11/101", "https://shopee.vn/product/11/102"]

Json = dict[str, Any]


def answered(
    status: int = 200,
    url: str = LINKS_CALL,
    *,
    body: str = "",
    lost: str = "",
    leads_to: str = "",
) -> CapturedResponse:
    return CapturedResponse(status, url, "application/json", body, lost, leads_to)


def look(
    form: str = "ready",
    *,
    url: str = PAGE,
    status: int = 200,
    password: bool = False,
    json: str = "",
) -> Json:
    return {"url": url, "status": status, "password": password, "form": form, "json": json}


@dataclass
class Tab:
    """A tab that plays what it is told. The last of `looks` is shown from then on.

    `lands` is the URL of a load, and `goes`, if set, the one to which its script goes on. A load
    raises `fails`, if set, after `fails_after` seconds. A look that is a `CallTimedOut` takes the
    call's whole deadline. `press` and `call` are the results of the scripts of a submit and of a
    call. `answers` are the responses that the page then receives, each after so many seconds.
    """

    lands: str = PAGE
    goes: str = ""
    fails: Exception | None = None
    fails_after: float = 0
    reports_all: bool = False  # as a real tab reports the targets of redirects
    looks: Sequence[Json | Exception] = field(default_factory=lambda: [look()])
    first_look_s: float = 0
    press: Any = field(default_factory=lambda: {"pressed": True})
    call: JsonValue | Exception = None
    answers: Sequence[tuple[float, CapturedResponse]] = ()
    visited: list[str] = field(default_factory=list)
    submits: list[Any] = field(default_factory=list)
    calls: list[Any] = field(default_factory=list)
    followed: list[tuple[str | None, str]] = field(default_factory=list)
    other_urls: Sequence[str] = ()

    async def goto(self, url: str) -> str:
        await trio.lowlevel.checkpoint()
        self.visited.append(url)
        if self.fails is not None:
            await trio.sleep(self.fails_after)
            raise self.fails
        return self.lands

    async def url(self) -> str:
        await trio.lowlevel.checkpoint()
        return self.goes or self.lands

    async def evaluate(
        self, function: str, *arguments: JsonValue, deadline: float = 10
    ) -> JsonValue:
        await trio.lowlevel.checkpoint()
        assert deadline < 60
        if function != page_state.FORM_SCRIPT:
            self.calls.append(arguments)
            return self._given(self.call)
        if arguments[0] == "look":
            await trio.sleep(self.first_look_s)
            self.first_look_s = 0
            if isinstance(self.looks[0], CallTimedOut):
                await trio.sleep(deadline)
            return self._look()
        self.submits.append(arguments[1:3])
        return self._given(self.press)

    @asynccontextmanager
    async def responses(
        self, *url_parts: str, method: str | None = "POST"
    ) -> AsyncIterator[trio.MemoryReceiveChannel[CapturedResponse]]:
        self.followed += [(method, url_part) for url_part in url_parts]
        send, receive = trio.open_memory_channel[CapturedResponse](16)
        failure: UpstreamFailed | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._answer, url_parts, send)
            try:
                yield receive
            except UpstreamFailed as error:
                failure = error  # to leave as it is, and in no group of the nursery's
            finally:
                nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def _answer(
        self, url_parts: Sequence[str], send: trio.MemorySendChannel[CapturedResponse]
    ) -> None:
        for seconds, response in self.answers:
            await trio.sleep(seconds)
            if self.reports_all or any(part in response.url for part in url_parts):
                await send.send(response)

    def _look(self) -> JsonValue:
        first, *rest = self.looks
        self.looks = rest or [first]
        return self._given(first)

    @staticmethod
    def _given(value: Any) -> JsonValue:
        if isinstance(value, Exception):
            raise value
        return value  # type: ignore[no-any-return]


async def raised(error: type[Exception], work: Any) -> Any:
    """The error that `work` raises."""
    with pytest.raises(error) as caught:
        await work
    return caught.value


def page_of(tab: Tab) -> Page:
    return cast("Page", tab)


async def open_links(tab: Tab) -> None:
    await portal.open_links_page(page_of(tab), VN)


async def submit_form(tab: Tab, *sub_ids: str) -> list[Row]:
    return await portal.submit_form(page_of(tab), VN, PRODUCTS, sub_ids)


async def submit_fetch(tab: Tab, *sub_ids: str) -> list[Row]:
    return await portal.submit_fetch(page_of(tab), VN, PRODUCTS, sub_ids)


def called(body: str, *, status: int = 200, url: str = LINKS_CALL) -> Json:
    return {"status": status, "url": url, "mimeType": "application/json", "body": body}


async def read_fetch(tab: Tab) -> Any:
    return await portal.read_product_fetch(page_of(tab), VN, PRODUCTS[0], default_cap=40_000)


async def read_page(tab: Tab) -> Any:
    return await portal.read_product_page(page_of(tab), VN, PRODUCTS[0], default_cap=40_000)
