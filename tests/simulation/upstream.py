"""Check each request of the daemon to the marketplace on the network, before the portal has it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.cookies import SimpleCookie
from urllib.parse import urlsplit

import httpx
import trio

from smartlinkd.sandbox.batch import target_of
from smartlinkd.sandbox.session import EXPIRED as EXPIRED_SESSION
from smartlinkd.sandbox.session import cookies_of
from tests.fakes.network import ORIGINS, Exchange, NetError, Network
from tests.simulation.expectations import EXPIRED, CookieId, Expectations
from tests.simulation.log import Log

CHUNK = 5
VARIANT = "SPC_V"
"""A cookie that the portal ignores. With it one account has two different cookies."""


def cookie_of(cookie_id: CookieId) -> str:
    """Return the `Cookie` header of a browser."""
    account, variant = cookie_id
    cookies = cookies_of(account)
    if variant:
        cookies[VARIANT] = variant
    if variant == EXPIRED:
        cookies["SPC_EC"] = EXPIRED_SESSION
    return "; ".join(f"{name}={value}" for name, value in cookies.items())


class CheckedNetwork(Network):
    """The network with checks. `fail` takes a description of what is wrong."""

    def __init__(self, expectations: Expectations, fail: Callable[[str], None], log: Log) -> None:
        super().__init__()
        self.expectations, self.fail, self.log = expectations, fail, log
        self.submits = 0
        self._submitting: Counter[str] = Counter()

    async def carry(self, exchange: Exchange) -> None:
        with self._checked(exchange):
            await super().carry(exchange)

    @contextmanager
    def _checked(self, exchange: Exchange) -> Iterator[None]:
        parts = urlsplit(exchange.url)
        cookies = _cookies(exchange)
        if exchange.url.startswith(ORIGINS.short):
            if cookies:
                self.fail(f"a cookie went to the short links' host: {parts.path}")
            if "dlink" in parts.path:
                self.fail(f"a login link was opened: {parts.path}")
        account = cookies.get("SPC_U", "")
        if account and not exchange.url.startswith(ORIGINS.shop):
            self._check_not_paused(account, exchange)
        if parts.path != "/api/v3/gql":
            yield
            return
        self.submits += 1
        self._check_submit(cookies, exchange)
        self._submitting[account] += 1
        if self._submitting[account] > 1:
            self.fail(f"account {account} is submitting twice at the same time")
        number, how = self.submits, "cut off"
        try:
            yield
            how = f"{exchange.status}{exchange.fault}"
        finally:
            self._submitting[account] -= 1
            self.log.note(f"portal: submit {number}: {how}")

    def _check_not_paused(self, account: str, exchange: Exchange) -> None:
        told = self.expectations.paused.get(account)
        # A submit at the same time as the product read that meets the check is allowed.
        if told is not None and told < trio.current_time():
            self.fail(
                f"{exchange.method} {urlsplit(exchange.url).path} for account {account}, whose "
                f"owner was told at {told:.3f} that it is paused"
            )

    def _check_submit(self, cookies: dict[str, str], exchange: Exchange) -> None:
        params = json.loads(exchange.request_body)["variables"]["linkParams"]
        if not 1 <= len(params) <= CHUNK:
            self.fail(f"a submit of {len(params)} links")
        places = {tuple(each["advancedLinkParams"].values()) for each in params}
        if len(places) != 1:
            self.fail(f"a submit with several sub-ids: {places}")
        items = [self._item_of(each["originalLink"]) for each in params]
        if len(set(items)) != len(items):
            self.fail(f"a submit with a link twice: {items}")
        cookie_id = (cookies.get("SPC_U", ""), cookies.get(VARIANT, ""))
        self.log.note(f"portal: submit {self.submits} of {items} for {cookie_id}", count="submits")
        self.expectations.submitted(cookie_id, items, places.pop())

    def _item_of(self, link: str) -> int:
        target = target_of(link, ORIGINS)
        if target is None:
            self.fail(f"a submit of something that is no link: {link}")
            return 0
        return target[1]


class NetworkTransport(httpx.AsyncBaseTransport):
    """Carries the daemon's own requests, which resolve short links, over the network."""

    def __init__(self, network: Network) -> None:
        self._network = network

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        headers = {name.lower(): text for name, text in request.headers.items()}
        exchange = Exchange(request.method, str(request.url), headers, request.content)
        await trio.lowlevel.checkpoint()
        await self._network.carry(exchange)
        try:
            content = await exchange.read()
        except NetError as fault:
            raise httpx.ReadError(str(fault)) from None
        return httpx.Response(exchange.status, headers=exchange.response_headers, content=content)


def _cookies(exchange: Exchange) -> dict[str, str]:
    jar: SimpleCookie = SimpleCookie(exchange.headers.get("cookie", ""))
    return {name: morsel.value for name, morsel in jar.items()}
