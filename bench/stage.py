"""The programs of rows 1 to 3: a portal, daemons, and a Playwright process beside them.

No link is converted twice, so the daemon's caches do not help it. Product data is off, because the
scripts read none. Both sides use the same Chromium program and the same portal. Each has its own
account, so that the portal can tell their submits apart. The floor has a Chromium with the daemon's
flags. A script is called in its own process; the daemon is asked over HTTP with a token.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count, islice
from typing import Any, Final, Literal

from bench.asking import JsonClient
from bench.bare import bare_chromium
from bench.daemons import Daemon, daemon, link
from bench.measure import Plan
from bench.scripted import Order, Script, ScriptProcess, script_process
from smartlinkd.browser.chromium import FLAGS
from smartlinkd.sandbox.batch import Origins
from smartlinkd.sandbox.session import DEFAULT_ACCOUNT, cookie_header
from tests.config_file import Tables
from tests.programs import sandbox

Method = Literal["form", "fetch"]

SUB_ID: Final = "bench"
QUEUE: Final = 128
"""Submits that may wait. The default is smaller than the number of clients here."""

NAMES: Final[Mapping[Script, str]] = {
    "kept": "Playwright, page kept",
    "each": "Playwright, a page for each",
}


class Links:
    """Links that were not asked for before."""

    def __init__(self, portal: Origins) -> None:
        self._portal = portal
        self._items = count(1_000_000)

    def new_links(self, number: int) -> list[str]:
        return [link(self._portal, item) for item in islice(self._items, number)]

    def orders(self, number: int, size: int, sub_id: str = SUB_ID) -> list[Order]:
        return [(self.new_links(size), [sub_id]) for _ in range(number)]


@dataclass(frozen=True)
class Setup:
    """The running programs, with one daemon for each method."""

    portal: Origins
    links: Links
    daemons: Mapping[Method, Daemon]
    scripts: ScriptProcess


@contextmanager
def set_up(plan: Plan, methods: Sequence[Method]) -> Iterator[Setup]:
    with ExitStack() as programs:
        plan.tell("starting a portal, daemons, and Playwright")
        portal = programs.enter_context(sandbox(plan.folder / "portal"))
        daemons = {}
        for method in methods:
            folder = plan.folder / f"daemon-{method}"
            served = programs.enter_context(daemon(folder, portal, _tables(method)))
            served.ask("POST", "/api/sync-cookie", {"cookie": cookie_header(DEFAULT_ACCOUNT)})
            daemons[method] = served
        floor = programs.enter_context(bare_chromium(plan.folder / "bare", FLAGS))
        folder = plan.folder / "playwright"
        scripts = programs.enter_context(script_process(folder, portal, port=floor.port))
        yield Setup(portal, Links(portal), daemons, scripts)


def _tables(method: Method) -> Tables:
    return {
        "marketplace": {"method": method},
        "products": {"source": "none"},
        "browser": {"queue": QUEUE},
    }


def progress_of(plan: Plan, what: str) -> Callable[[str], None]:
    return lambda text: plan.tell(f"{what}: {text}")


def timed(server: JsonClient, ask: Callable[[JsonClient], None]) -> float:
    began = time.perf_counter()
    ask(server)
    return time.perf_counter() - began


def connect(served: Daemon) -> JsonClient:
    return JsonClient(served.url, {"Authorization": f"Bearer {served.token}"})


def ask_daemon(served: JsonClient, order: Order) -> None:
    """Convert an order. Raises `ValueError` unless each link has a short link of its own."""
    links, sub_ids = order
    answer = served.post("/api/convert", {"links": links, "subIds": sub_ids})
    check_converted(links, answer["mapping"])


def check_converted(links: Sequence[str], mapping: Mapping[str, Any]) -> None:
    """Raise `ValueError` unless `mapping` has exactly these links, each with its own short link."""
    made = {entry["shortLink"] for entry in mapping.values() if entry["failCode"] == 0} - {""}
    if mapping.keys() != set(links) or len(made) != len(links):
        raise ValueError(f"{links} became {mapping}")
