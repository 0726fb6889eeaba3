"""The daemon of a soak, and the shared state of the jobs: accounts, links, locks, results.

Chromium is never replaced for its size or age, which would hide a leak. The tables of results are
small, so that they are full after the warm-up. A job kills processes within `disruption()`, and
requests may be refused during it and for a short time after it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from math import inf
from types import MappingProxyType
from typing import Any, Final, TypeVar

import httpx
import trio

from bench.daemons import Daemon
from smartlinkd.sandbox.batch import Origins
from smartlinkd.sandbox.products import product_link, product_of
from tests.config_file import Tables
from tests.programs import Account
from tests.simulation.answers import Link, WrongAnswer
from tests.soak.crew import CREW, NAME, EndReceiver

Json = dict[str, Any]
T = TypeVar("T")

HOME_ACCOUNTS: Final = 3
"""Accounts with most conversions, so that their pages stay open."""
POOL: Final = 16
"""The number of all accounts. The pages of the others are mostly opened again for each use."""
WARM: Final = 4
"""Accounts whose pages are kept open."""
FIRST_ACCOUNT: Final = 700_000_000
FIRST_ITEM: Final = 500_000_000
POLL_INTERVAL: Final = 0.1
TRIES: Final = 5
"""Attempts of a conversion."""
RETRY_DELAY: Final = 2.0
"""Seconds between two attempts."""
DISRUPTION_EFFECT: Final = 2.0
"""Seconds after a disruption in which a request may be refused."""
REMEMBERED: Final = 100
"""Rows of the tables of links, products and executions. Such a table is full in a minute."""
TABLES: Final[Tables] = {
    # Logins state their addresses in X-Forwarded-For.
    "server": {"trusted_proxies": ["127.0.0.0/8"]},
    "browser": {
        "contexts": WARM,
        "recycle_after": 30 * 24 * 3600,
        "recycle_memory": 64 * 1024**3,  # the largest value that the configuration accepts
    },
    "links": {"remember_max": REMEMBERED},
    "products": {"remember_max": REMEMBERED},
    "journal": {"retention_count": REMEMBERED},
    "webhooks": {"allow": ["127.0.0.0/8"], "secret": "what-webhook-calls-are-signed-with"},
    "crews": [CREW],
}


@dataclass
class Results:
    """The numbers of finished jobs by kind, other counts, and the errors."""

    done: Counter[str] = field(default_factory=Counter)
    others: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)

    def record_error(self, text: str) -> None:
        self.errors.append(text)
        print(f"ERROR: {text}", flush=True)


class World:
    """The shared state. The `http` of its functions is an HTTP client that lives for one round."""

    def __init__(
        self, daemon: Daemon, origins: Origins, receiver: EndReceiver, results: Results
    ) -> None:
        self.daemon = daemon
        self.origins = origins
        self.receiver = receiver
        self.results = results
        self.accounts = [Account(str(FIRST_ACCOUNT + place)) for place in range(POOL)]
        self.fault_account = Account(str(FIRST_ACCOUNT + POOL))
        self.synced: list[str] = []
        """The accounts whose cookies were sent to be stored, in order."""
        self.known_index = 0
        """The place in `synced` of the last account whose cookie is surely stored."""
        self.chromiums: list[int] = []
        """Process ids of the Chromiums that were sampled, in order."""
        self.crew_token = daemon.crew_token(NAME)
        self.login_lock = trio.Lock()
        self.fault_lock = trio.Lock()
        self.sync_lock = trio.Lock()
        self.kill_lock = trio.Lock()
        self._items = count(FIRST_ITEM)
        self._disruptions = 0
        self._undisturbed_since = -inf

    # Requests

    async def ask(
        self,
        http: httpx.AsyncClient,
        method: str,
        path: str,
        body: object = None,
        *,
        token: str | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> httpx.Response:
        """Send a request to the daemon. `token` is None for the owner's, and "" for no token."""
        given = self.daemon.token if token is None else token
        sent = {**headers, **({"Authorization": f"Bearer {given}"} if given else {})}
        return await http.request(method, self.daemon.url + path, json=body, headers=sent)

    async def convert(self, http: httpx.AsyncClient, body: Json) -> httpx.Response:
        """Convert links, and repeat a request that is refused because of a missed probe.

        A busy machine may delay a probe of the browser.
        """
        for _ in range(TRIES):
            answer = await self.ask(http, "POST", "/api/convert", body)
            if answer.status_code != 503 or "unresponsive" not in answer.text:
                return answer
            self.results.others["retries after a missed probe"] += 1
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

    async def until(
        self, http: httpx.AsyncClient, what: str, condition: Callable[[Json], bool], within: float
    ) -> Json:
        """Return the first status that meets the condition. `what` is for the error.

        Raises:
            WrongAnswer: There was none within so many seconds.
        """
        status: Json = {}
        with trio.move_on_after(within):
            while not condition(status := await self.status(http)):  # noqa: ASYNC110 - no event
                await trio.sleep(POLL_INTERVAL)
            return status
        raise WrongAnswer(f"no {what} within {within:g} s: {status}")

    # Disruptions

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

    # Links, each to a product of its own

    def canonical_link(self) -> Link:
        item = next(self._items)
        return Link(product_link(product_of(item), self.origins.shop), item)

    def short_link(self) -> Link:
        item = next(self._items)
        return Link(f"{self.origins.short}/p{product_of(item).shop_id}i{item}", item)

    def foreign_link(self) -> Link:
        """Return a link to another shop."""
        return Link(f"https://elsewhere.example/product/1/{next(self._items)}", 0)


def expect_ok(answer: httpx.Response) -> Json:
    """Return the body of an answer with status 200.

    Raises:
        WrongAnswer: The status is another one.
    """
    if answer.status_code != 200:
        raise WrongAnswer(describe(answer))
    found: Json = answer.json()
    return found


def describe(answer: httpx.Response) -> str:
    """Describe an answer in an error message."""
    request = answer.request
    return f"{request.method} {request.url.path}: {answer.status_code} {answer.text[:300]}"


def pick(chance: random.Random, weights: Mapping[T, float]) -> T:
    """Return one of the keys. The values are their relative frequencies."""
    (found,) = chance.choices(list(weights), list(weights.values()))
    return found
