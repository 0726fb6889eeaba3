"""What all jobs of a soak share: the daemon as a client sees it, the portal's accounts, and the
book in which it is written what was done and what went wrong.

Whoever kills something says so (`striking`). What others are answered meanwhile, and a moment
before and after, may then be a refusal; at any other time there is one right answer.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final

import httpx
import trio

from bench.daemons import Daemon
from smartlinkd.sandbox.batch import Origins, long_link, short_code
from smartlinkd.sandbox.products import SandboxProduct, product_link, product_of
from smartlinkd.sandbox.session import cookies_of
from tests.soak.jobs import POOL, Form, Kind, Link
from tests.soak.observable import CREW
from tests.soak.receiver import Ends

Json = dict[str, Any]

FIRST_ACCOUNT: Final = 700_000_000
PATIENCE: Final = 90.0
"""Seconds for any one answer: longer than the daemon's own deadlines."""
TRIES: Final = 5
PAUSE: Final = 2.0
"""Seconds between two tries."""
AFTERSHOCK: Final = 2.0
"""Seconds for which a strike still excuses a refusal."""
MOST_WRONG: Final = 50
"""Of what went wrong, so much is kept to be told."""


class Wrong(Exception):  # noqa: N818 - it is what went on
    """A job got what it should not have; the text says what."""


@dataclass
class Account:
    """One account of the portal; `renew()` is a login of its owner: another session."""

    number: str
    session: int = 0

    @property
    def cookie(self) -> str:
        cookies = cookies_of(self.number)
        cookies["SPC_F"] += f"{self.session:x}"
        return "; ".join(f"{name}={value}" for name, value in cookies.items())

    def renew(self) -> None:
        self.session += 1


@dataclass
class Stored:
    """Which accounts' cookies were stored, in order: one that is being stored may be in force."""

    begun: list[str] = field(default_factory=list)
    certain: int = 0  # place of the last one that is known to be stored

    def since(self, certain: int) -> set[str]:
        """Whose cookie may have been used by somebody who began when `certain` was."""
        return set(self.begun[certain:])


def _nothing_done() -> Counter[str]:
    return Counter(dict.fromkeys(Kind, 0))


@dataclass
class Book:
    """What was done, by kind; what else there was to count; and what went wrong: how often, and
    the first of it in words."""

    done: Counter[str] = field(default_factory=_nothing_done)
    also: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    wrongs: int = 0

    def note_wrong(self, text: str) -> None:
        self.wrongs += 1
        if len(self.wrong) < MOST_WRONG:
            self.wrong.append(text)
        print(f"WRONG: {text}", flush=True)


class World:
    """See above. `http` is a client for as long as a round lasts."""

    def __init__(self, daemon: Daemon, origins: Origins, ends: Ends, book: Book) -> None:
        self.daemon = daemon
        self.origins = origins
        self.ends = ends
        self.book = book
        self.accounts = [Account(str(FIRST_ACCOUNT + place)) for place in range(POOL)]
        self.troubled = Account(str(FIRST_ACCOUNT + POOL))
        self.stored = Stored()
        self.chromiums: list[int] = []
        """The main process of each that was looked at, in order."""
        self.token = daemon.token
        self.crew_token = daemon.crew_token(CREW)
        self.logging_in = trio.Lock()
        self.in_trouble = trio.Lock()
        self.syncing = trio.Lock()
        self.killing = trio.Lock()
        self._strikes = 0
        self._calm_since = -inf

    async def ask(
        self,
        http: httpx.AsyncClient,
        method: str,
        path: str,
        body: object = None,
        *,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """A request to the daemon, as the owner, or with another token; an empty one is none."""
        sent = dict(headers or {})
        given = self.token if token is None else token
        if given:
            sent["Authorization"] = f"Bearer {given}"
        content = None
        if body is not None:
            content, sent["Content-Type"] = json.dumps(body).encode(), "application/json"
        url = self.daemon.url + path
        return await http.request(method, url, content=content, headers=sent)

    async def convert(self, http: httpx.AsyncClient, body: Json) -> httpx.Response:
        """A conversion. Where the daemon says that its browser has missed a beat, which it may on
        a machine that has too much to do, it is tried again, as the answer says."""
        for _ in range(TRIES):
            answer = await self.ask(http, "POST", "/api/convert", body)
            if answer.status_code != 503 or "unresponsive" not in answer.text:
                return answer
            self.book.also["tries again after a missed beat"] += 1
            await trio.sleep(PAUSE)
        return answer

    async def ask_portal(
        self, http: httpx.AsyncClient, method: str, path: str, body: object = None
    ) -> Json:
        """One of the sandbox's own switches."""
        url = f"{self.origins.portal}/_sandbox/{path}"
        answer = await http.request(method, url, json=body)
        found: Json = answer.raise_for_status().json()
        return found

    async def status(self, http: httpx.AsyncClient) -> Json:
        """What the owner is shown."""
        return right(await self.ask(http, "GET", "/api/status"))

    @asynccontextmanager
    async def striking(self) -> AsyncIterator[None]:
        """Somebody is being killed, until all is well again."""
        self._strikes += 1
        try:
            yield
        finally:
            self._strikes -= 1
            self._calm_since = trio.current_time()

    def was_calm(self, began: float) -> bool:
        """Whether nothing was struck since then."""
        return self._strikes == 0 and self._calm_since + AFTERSHOCK < began

    # What the portal sells

    def text(self, link: Link) -> str:
        """The link as a client sends it."""
        product = product_of(link.item)
        match link.form:
            case Form.CANONICAL:
                return product_link(product, self.origins.shop)
            case Form.SHORT:
                return f"{self.origins.short}/p{product.shop_id}i{product.item_id}"
            case Form.FOREIGN:
                return f"https://elsewhere.example/product/{product.shop_id}/{product.item_id}"

    def check_entry(
        self, link: Link, entry: Json, number: str, sub_ids: tuple[str, ...], *, calm: bool
    ) -> None:
        """Raises `Wrong` when it is not what a link of account `number` has to become."""
        text = self.text(link)
        if link.form is Form.FOREIGN:
            if entry != {"error": True, "failCode": INVALID} and (calm or not is_lost(entry)):
                raise Wrong(f"{text} became {entry}")
            return
        if not calm and is_lost(entry):
            return
        sold = product_of(link.item)
        places = (*sub_ids, *[""] * (5 - len(sub_ids)))
        long = long_link(sold.shop_id, link.item, number, places, self.origins)
        short = f"{self.origins.short}/{short_code(long)}"
        if (entry.get("longLink"), entry.get("shortLink"), entry.get("failCode")) != (
            long,
            short,
            0,
        ):
            raise Wrong(f"{text} of account {number} became {entry}")
        if not _is_product(entry["product"], sold) and (calm or entry["product"] is not None):
            raise Wrong(f"{text} has the product {entry['product']}")


INVALID: Final = 10
LOST: Final = -1


def is_lost(entry: Json) -> bool:
    """Whether a link was not made for want of a browser."""
    return entry == {"error": True, "failCode": LOST}


def right(answer: httpx.Response) -> Json:
    """The body of an answer that has to be good. Raises `Wrong`."""
    if answer.status_code != 200:
        raise Wrong(f"{told(answer)}")
    found: Json = answer.json()
    return found


def told(answer: httpx.Response) -> str:
    """An answer, for a report."""
    request = answer.request
    return f"{request.method} {request.url.path}: {answer.status_code} {answer.text[:300]}"


def _is_product(found: Json | None, sold: SandboxProduct) -> bool:
    """By what only the portal can have told."""
    return found is not None and (found["name"], found["price"], found["sales"]) == (
        sold.name,
        sold.price,
        sold.sold,
    )
