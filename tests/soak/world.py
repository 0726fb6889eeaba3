"""The shared state of a soak's jobs: a client of the daemon, the portal's accounts, the results.

A job kills processes within `disruption()`. Requests may be refused during a disruption and for a
short time after it.
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
from tests.programs import Account
from tests.soak.jobs import POOL, Form, Kind, Link
from tests.soak.observable import CREW
from tests.soak.receiver import EndReceiver

Json = dict[str, Any]

FIRST_ACCOUNT: Final = 700_000_000
PATIENCE: Final = 90.0
"""Seconds for an answer: longer than the daemon's own deadlines."""
TRIES: Final = 5
"""Attempts of a conversion."""
RETRY_DELAY: Final = 2.0
"""Seconds between two attempts."""
DISRUPTION_EFFECT: Final = 2.0
"""Seconds after a disruption in which a request may be refused."""
MOST_ERRORS: Final = 50
"""The most error messages that are kept for the report."""


class UnexpectedAnswer(Exception):  # noqa: N818 - the name says it
    """A wrong answer or a missing one. The text describes it."""


@dataclass
class Stored:
    """The accounts whose cookies were sent to be stored, in order."""

    accounts: list[str] = field(default_factory=list)
    known_index: int = 0  # of the last account whose cookie is surely stored

    def possible_since(self, known_index: int) -> set[str]:
        """Return the accounts whose cookie may have been stored since `known_index` was read."""
        return set(self.accounts[known_index:])


def _nothing_done() -> Counter[str]:
    return Counter(dict.fromkeys(Kind, 0))


@dataclass
class Results:
    """The numbers of finished jobs by kind, other counts, and the errors."""

    jobs_done: Counter[str] = field(default_factory=_nothing_done)
    other_counts: Counter[str] = field(default_factory=Counter)
    first_errors: list[str] = field(default_factory=list)
    error_count: int = 0

    def record_error(self, text: str) -> None:
        self.error_count += 1
        if len(self.first_errors) < MOST_ERRORS:
            self.first_errors.append(text)
        print(f"ERROR: {text}", flush=True)


class World:
    """The shared state. `http` is an HTTP client that lives for one round."""

    def __init__(
        self, daemon: Daemon, origins: Origins, receiver: EndReceiver, results: Results
    ) -> None:
        self.daemon = daemon
        self.origins = origins
        self.receiver = receiver
        self.results = results
        self.accounts = [Account(str(FIRST_ACCOUNT + place)) for place in range(POOL)]
        self.fault_account = Account(str(FIRST_ACCOUNT + POOL))
        self.stored = Stored()
        self.chromiums: list[int] = []
        """Process ids of the Chromiums that were sampled, in order."""
        self.token = daemon.token
        self.crew_token = daemon.crew_token(CREW)
        self.login_lock = trio.Lock()
        self.fault_lock = trio.Lock()
        self.sync_lock = trio.Lock()
        self.kill_lock = trio.Lock()
        self._disruptions = 0
        self._undisturbed_since = -inf

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
        """Send a request to the daemon. `token` is None for the owner's, and "" for no token."""
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
        """Convert links, and repeat a request that is refused because of a missed probe.

        A busy machine may delay a probe of the browser.
        """
        for _ in range(TRIES):
            answer = await self.ask(http, "POST", "/api/convert", body)
            if answer.status_code != 503 or "unresponsive" not in answer.text:
                return answer
            self.results.other_counts["retries after a missed probe"] += 1
            await trio.sleep(RETRY_DELAY)
        return answer

    async def ask_portal(
        self, http: httpx.AsyncClient, method: str, path: str, body: object = None
    ) -> Json:
        """Send a request to the sandbox's own API."""
        url = f"{self.origins.portal}/_sandbox/{path}"
        answer = await http.request(method, url, json=body)
        found: Json = answer.raise_for_status().json()
        return found

    async def status(self, http: httpx.AsyncClient) -> Json:
        """Return the daemon's status."""
        return expect_ok(await self.ask(http, "GET", "/api/status"))

    @asynccontextmanager
    async def disruption(self) -> AsyncIterator[None]:
        """Mark the block as a disruption: from a kill to the recovery."""
        self._disruptions += 1
        try:
            yield
        finally:
            self._disruptions -= 1
            self._undisturbed_since = trio.current_time()

    def was_undisturbed(self, began: float) -> bool:
        """True if there was no disruption since `began`, nor shortly before."""
        return self._disruptions == 0 and self._undisturbed_since + DISRUPTION_EFFECT < began

    # Links

    def text(self, link: Link) -> str:
        """Return the link as a client sends it."""
        product = product_of(link.item)
        match link.form:
            case Form.CANONICAL:
                return product_link(product, self.origins.shop)
            case Form.SHORT:
                return f"{self.origins.short}/p{product.shop_id}i{product.item_id}"
            case Form.FOREIGN:
                return f"https://elsewhere.example/product/{product.shop_id}/{product.item_id}"

    def check_entry(
        self,
        link: Link,
        entry: Json,
        number: str,
        sub_ids: tuple[str, ...],
        *,
        is_undisturbed: bool,
    ) -> None:
        """Check the entry of a link that account `number` converts.

        Raises:
            UnexpectedAnswer: The entry is wrong.
        """
        text = self.text(link)
        if link.form is Form.FOREIGN:
            if entry != {"error": True, "failCode": INVALID} and (
                is_undisturbed or not is_without_browser(entry)
            ):
                raise UnexpectedAnswer(f"{text} became {entry}")
            return
        if not is_undisturbed and is_without_browser(entry):
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
            raise UnexpectedAnswer(f"{text} of account {number} became {entry}")
        if not _is_product(entry["product"], sold) and (
            is_undisturbed or entry["product"] is not None
        ):
            raise UnexpectedAnswer(f"{text} has the product {entry['product']}")


INVALID: Final = 10
WITHOUT_BROWSER: Final = -1


def is_without_browser(entry: Json) -> bool:
    """True if the link failed because there was no browser."""
    return entry == {"error": True, "failCode": WITHOUT_BROWSER}


def expect_ok(answer: httpx.Response) -> Json:
    """Return the body of an answer with status 200.

    Raises:
        UnexpectedAnswer: The status is another one.
    """
    if answer.status_code != 200:
        raise UnexpectedAnswer(f"{describe(answer)}")
    found: Json = answer.json()
    return found


def describe(answer: httpx.Response) -> str:
    """Describe an answer in an error message."""
    request = answer.request
    return f"{request.method} {request.url.path}: {answer.status_code} {answer.text[:300]}"


def _is_product(found: Json | None, sold: SandboxProduct) -> bool:
    """True if the product data is the portal's."""
    return found is not None and (found["name"], found["price"], found["sales"]) == (
        sold.name,
        sold.price,
        sold.sold,
    )
