"""The marketplace, as it sees the daemon: what no request of the daemon's may ever be.

Looked at on the network, before the portal has it: so it counts what was sent, whatever became of
it afterwards.
"""

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
from smartlinkd.sandbox.session import EXPIRED as OVER
from smartlinkd.sandbox.session import cookies_of
from tests.fakes.network import ORIGINS, Exchange, NetError, Network
from tests.simulation.books import EXPIRED, Books, Whose
from tests.simulation.log import Log

CHUNK = 5
VARIANT = "SPC_V"
"""A cookie that the portal does not know: it makes two cookies of one account."""


def cookie_of(whose: Whose) -> str:
    """As a browser would send it. Of an account there may be two."""
    account, variant = whose
    cookies = cookies_of(account)
    if variant:
        cookies[VARIANT] = variant
    if variant == EXPIRED:
        cookies["SPC_EC"] = OVER
    return "; ".join(f"{name}={value}" for name, value in cookies.items())


class Upstream(Network):
    """The network, with eyes. `broken` is told what is wrong."""

    books: Books
    broken: Callable[[str], None]
    log: Log

    def watch(self, books: Books, broken: Callable[[str], None], log: Log) -> None:
        self.books, self.broken, self.log = books, broken, log
        self.submits = 0
        self._submitting: Counter[str] = Counter()

    async def carry(self, exchange: Exchange) -> None:
        with self._looked_at(exchange):
            await super().carry(exchange)

    @contextmanager
    def _looked_at(self, exchange: Exchange) -> Iterator[None]:
        parts = urlsplit(exchange.url)
        cookies = _cookies(exchange)
        if exchange.url.startswith(ORIGINS.short):
            if cookies:
                self.broken(f"a cookie went to the short links' host: {parts.path}")
            if "dlink" in parts.path:
                self.broken(f"a login link was opened: {parts.path}")
        account = cookies.get("SPC_U", "")
        if account and not exchange.url.startswith(ORIGINS.shop):
            self._not_paused(account, exchange)
        if parts.path != "/api/v3/gql":
            yield
            return
        self.submits += 1
        self._looks_right(cookies, exchange)
        self._submitting[account] += 1
        if self._submitting[account] > 1:
            self.broken(f"account {account} is submitting twice at the same time")
        number, how = self.submits, "cut off"
        try:
            yield
            how = f"{exchange.status}{exchange.fault}"
        finally:
            self._submitting[account] -= 1
            self.log.note(f"portal: submit {number}: {how}")

    def _not_paused(self, account: str, exchange: Exchange) -> None:
        told = self.books.paused.get(account)
        # A submit that is under way when a product read meets the check is let through.
        if told is not None and told < trio.current_time():
            self.broken(
                f"{exchange.method} {urlsplit(exchange.url).path} for account {account}, whose "
                f"owner was told at {told:.3f} that it is paused"
            )

    def _looks_right(self, cookies: dict[str, str], exchange: Exchange) -> None:
        params = json.loads(exchange.request_body)["variables"]["linkParams"]
        if not 1 <= len(params) <= CHUNK:
            self.broken(f"a submit of {len(params)} links")
        places = {tuple(each["advancedLinkParams"].values()) for each in params}
        if len(places) != 1:
            self.broken(f"a submit with several sub-ids: {places}")
        items = [self._item(each["originalLink"]) for each in params]
        if len(set(items)) != len(items):
            self.broken(f"a submit with a link twice: {items}")
        whose = (cookies.get("SPC_U", ""), cookies.get(VARIANT, ""))
        self.log.note(f"portal: submit {self.submits} of {items} for {whose}", count="submits")
        self.books.submitted(whose, items, places.pop())

    def _item(self, link: str) -> int:
        target = target_of(link, ORIGINS)
        if target is None:
            self.broken(f"a link was submitted that is none: {link}")
            return 0
        return target[1]


class Plain(httpx.AsyncBaseTransport):
    """The daemon's own requests, without a browser: for short links."""

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
