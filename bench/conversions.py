"""Rows 1, 2 and 3: conversions, beside Playwright scripts that do the same work.

What is converted is never asked for twice, so nothing that the daemon remembers helps it. Product
data is off: the scripts read none. Both sides use the same Chromium and the same portal, each with
an account of its own, by which the portal tells their submits apart. A script is called in its own
process and is not served to anybody, while the daemon is asked over HTTP, with its token checked.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count, islice
from statistics import median
from typing import Final, Literal

from bench.asking import Asking
from bench.daemons import Daemon, Origins, Tables, ask_portal, cookie_header, daemon, link, sandbox
from bench.measure import NO_GOAL, Comparison, Goal, Plan, Row, Series, interleave
from bench.peers.playwright_kept import CHUNK, QUERY
from bench.scripted import ACCOUNT as SCRIPTS_ACCOUNT
from bench.scripted import Done, Order, Script, Scripted, scripted
from daemon.sandbox.session import DEFAULT_ACCOUNT, cookies_of

Method = Literal["form", "fetch"]

METHODS: Final[tuple[Method, ...]] = ("form", "fetch")
SIZES: Final = (1, 5, 15)
"""Links of a request."""
SUB_ID: Final = "bench"

PORTAL_MS: Final = 100
"""How long the portal thinks about a submit in rows 2 and 3."""
CLIENTS: Final = (1, 4, 16, 32, 64)
CROWD: Final = 32
"""Clients from which merging has to show."""
QUEUE: Final = 128
"""Submits that may wait: by default fewer than the clients here."""
PLENTY: Final = 30
"""Orders for a client: more than it can have done in the time."""

NAMES: Final[Mapping[Script, str]] = {
    "kept": "Playwright, page kept",
    "each": "Playwright, a page for each",
}
GOALS_1: Final[Mapping[Script, Goal]] = {"kept": Goal(at_most=0.5), "each": Goal(at_most=0.1)}


class _Links:
    """Links that were not asked for before."""

    def __init__(self, portal: Origins) -> None:
        self._portal = portal
        self._items = count(1_000_000)

    def some(self, number: int) -> list[str]:
        return [link(self._portal, item) for item in islice(self._items, number)]

    def orders(self, number: int, size: int, sub_id: str = SUB_ID) -> list[Order]:
        return [(self.some(size), [sub_id]) for _ in range(number)]


@dataclass(frozen=True)
class _Stage:
    """All that takes part. There is a daemon for each of the methods that were asked for."""

    portal: Origins
    links: _Links
    daemons: Mapping[Method, Daemon]
    scripts: Scripted


@contextmanager
def _stage(plan: Plan, methods: Sequence[Method]) -> Iterator[_Stage]:
    with ExitStack() as programs:
        plan.tell("starting a portal, daemons, and Playwright")
        portal = programs.enter_context(sandbox(plan.folder / "portal"))
        daemons = {}
        for method in methods:
            folder = plan.folder / f"daemon-{method}"
            served = programs.enter_context(daemon(folder, portal, _tables(method)))
            served.ask("POST", "/api/sync-cookie", {"cookie": cookie_header(DEFAULT_ACCOUNT)})
            daemons[method] = served
        scripts = programs.enter_context(scripted(plan.folder / "playwright", portal))
        yield _Stage(portal, _Links(portal), daemons, scripts)


def _tables(method: Method) -> Tables:
    return {
        "marketplace": {"method": method},
        "products": {"source": "none"},
        "browser": {"queue": QUEUE},
    }


def _teller(plan: Plan, what: str) -> Callable[[str], None]:
    return lambda text: plan.tell(f"{what}: {text}")


# Row 1


def row_1(plan: Plan) -> Row:
    """What is added to the portal's own answer."""
    rounds, times = plan.rounds(14, 2), plan.rounds(5, 3)
    comparisons: list[Comparison] = []
    floors: list[str] = []
    with _stage(plan, METHODS) as stage, ExitStack() as clients:
        portal = clients.enter_context(_portal_client(stage.portal))
        for method in METHODS:
            ours = clients.enter_context(_daemon_client(stage.daemons[method]))
            for size in SIZES:
                waited: list[float] = []
                sides = _sides_1(stage, method, size, ours, portal, waited=waited, times=times)
                for side in sides.values():
                    side()  # once for nothing: what is measured is warm
                del waited[:]
                found = interleave(sides, rounds, _teller(plan, f"{method}, links: {size}"))
                comparisons += _compared_1(method, size, found)
                floors.append(_floor(method, size, found, waited))
    return Row(
        1,
        "Warm conversion: what is added to the portal's own answer",
        comparisons,
        [
            "Added is what a conversion took, less what the same submits take a bare HTTP client "
            "in the same round; Chromium's own part is in it on both sides.",
            "The daemon is asked over HTTP; the scripts are called in their own process.",
            "The ratio of a daemon that did nothing but ask Chromium, which is the page's own time "
            "from its call to the answer; and with the daemon's answer to an empty question over "
            f"HTTP added: {'; '.join(floors)}",
        ],
    )


Side = Callable[[], float]


def _sides_1(
    stage: _Stage,
    method: Method,
    size: int,
    ours: Asking,
    portal: Asking,
    *,
    waited: list[float],
    times: int,
) -> dict[str, Side]:
    """Each measures some conversions in a row, and gives their median, in seconds.

    What the kept page waited for the portal in an order goes to `waited`.
    """
    links, scripts = stage.links, stage.scripts

    def script(name: Script, times: int) -> float:
        done = scripts.convert(name, method, [links.orders(times, size)])
        if done.waited:
            waited.append(median(done.waited) * -(-size // CHUNK))
        return median(done.orders)

    def by_daemon() -> float:
        return median(
            _timed(ours, partial(_ask_daemon, order=order)) for order in links.orders(times, size)
        )

    def by_portal() -> float:
        return median(
            _timed(portal, partial(_ask_portal, order=order)) for order in links.orders(times, size)
        )

    return {
        "daemon": by_daemon,
        "kept": lambda: script("kept", times),
        "each": lambda: script("each", 2),
        "portal": by_portal,
        "http": lambda: median(_timed(ours, _ask_nothing) for _ in range(times)),
    }


def _compared_1(
    method: Method, size: int, found: Mapping[str, Sequence[float]]
) -> Iterator[Comparison]:
    def added(side: str, name: str) -> Series:
        pairs = zip(found[side], found["portal"], strict=True)
        return Series(name, "s", [max(took - portal, 1e-6) for took, portal in pairs])

    what = f"{method}, {size} link{'s' if size > 1 else ''}"
    for script, goal in GOALS_1.items():
        yield Comparison(
            f"{what}, beside {NAMES[script]}",
            added("daemon", "daemon"),
            added(script, NAMES[script]),
            goal=goal,
        )


def _floor(
    method: Method, size: int, found: Mapping[str, Sequence[float]], waited: Sequence[float]
) -> str:
    portal = median(found["portal"])
    added = median(found["kept"]) - portal
    chromium = median(waited) - portal
    asked = chromium + median(found["http"])
    return f"{method}, {size}: {chromium / added:.2f}, {asked / added:.2f}"


def _timed(server: Asking, ask: Callable[[Asking], None]) -> float:
    began = time.perf_counter()
    ask(server)
    return time.perf_counter() - began


# Rows 2 and 3


def row_2(plan: Plan) -> Row:
    """Throughput, where merging helps."""
    comparisons, notes = _throughput(plan, lambda _client: SUB_ID, _goal_2)
    return Row(
        2,
        f"Conversions a second, one link each, the portal answering in {PORTAL_MS} ms",
        comparisons,
        notes,
    )


def row_3(plan: Plan) -> Row:
    """Throughput, where nothing can be merged."""
    comparisons, notes = _throughput(
        plan, lambda client: f"client{client}", lambda _clients: Goal(at_least=1.0)
    )
    return Row(3, "The same with other sub-ids for each client: queueing only", comparisons, notes)


def _goal_2(clients: int) -> Goal:
    if clients == 1:
        return Goal(at_least=1.0)
    return Goal(at_least=4.0) if clients >= CROWD else NO_GOAL


def _throughput(
    plan: Plan, sub_id: Callable[[int], str], goal: Callable[[int], Goal]
) -> tuple[list[Comparison], list[str]]:
    seconds, rounds = (1.0, 1) if plan.quick else (2.0, 4)
    counts = (1, CROWD) if plan.quick else CLIENTS
    comparisons: list[Comparison] = []
    notes: list[str] = []
    with _stage(plan, ["form"]) as stage:
        ask_portal(stage.portal, "POST", "delay", {"submit_ms": PORTAL_MS})
        for clients in counts:
            crowd = _Crowd(stage, [sub_id(client) for client in range(clients)], seconds)
            sides: dict[str, Side] = {"daemon": crowd.by_daemon, "kept": crowd.by_kept}
            if clients in (1, CROWD):
                sides["each"] = crowd.by_each
            before = _submits(stage.portal)
            found = interleave(sides, rounds, _teller(plan, f"clients: {clients}"))
            comparisons += _compared_2(clients, found, goal(clients))
            notes.append(_submits_told(clients, before, _submits(stage.portal)))
    return comparisons, notes


class _Crowd:
    """Clients with one link each, again and again for some seconds; conversions a second."""

    def __init__(self, stage: _Stage, sub_ids: Sequence[str], seconds: float) -> None:
        self._stage = stage
        self._sub_ids = sub_ids
        self._seconds = seconds

    def by_daemon(self) -> float:
        served = self._stage.daemons["form"]
        with _daemon_client(served) as warming:
            _ask_daemon(warming, self._order())
        return _rate(_serve(served, self._orders(), self._seconds))

    def by_kept(self) -> float:
        return self._by("kept")

    def by_each(self) -> float:
        return self._by("each")

    def _by(self, script: Script) -> float:
        scripts = self._stage.scripts
        scripts.convert(script, "form", [[self._order()]])
        return _rate(scripts.convert(script, "form", self._orders(), self._seconds))

    def _order(self) -> Order:
        return (self._stage.links.some(1), self._sub_ids[:1])

    def _orders(self) -> list[list[Order]]:
        return [self._stage.links.orders(PLENTY, 1, sub_id) for sub_id in self._sub_ids]


def _rate(done: Done) -> float:
    return len(done.orders) / done.seconds if done.orders else 0.0


def _serve(served: Daemon, clients: Sequence[Sequence[Order]], seconds: float) -> Done:
    """Each client's orders on a connection of its own; who is not served in time goes away."""
    took: list[float] = []
    faults: list[Exception] = []
    ended = [0.0]
    leaving = threading.Event()
    began = time.perf_counter()

    def client(asking: Asking, orders: Sequence[Order]) -> None:
        try:
            for order in orders:
                one = _timed(asking, partial(_ask_daemon, order=order))
                if leaving.is_set():
                    return
                ended[0] = time.perf_counter() - began
                took.append(one)
        except Exception as fault:  # noqa: BLE001 - it is raised by who waits for this thread
            if not leaving.is_set():
                faults.append(fault)

    connections = [_daemon_client(served) for _ in clients]
    threads = [
        threading.Thread(target=client, args=pair)
        for pair in zip(connections, clients, strict=True)
    ]
    for thread in threads:
        thread.start()
    threads[0].join(seconds)
    leaving.set()
    for connection, thread in zip(connections, threads, strict=True):
        connection.leave()
        thread.join()
        connection.close()
    if faults:
        raise faults[0]
    return Done(took, ended[0])


Submits = Mapping[str, tuple[int, int]]
"""Of each account: submits, and links in them."""


def _submits(portal: Origins) -> Submits:
    accounts = ask_portal(portal, "GET", "log?last=0")["accounts"]
    return {name: (seen["submits"], seen["links"]) for name, seen in accounts.items()}


def _submits_told(clients: int, before: Submits, after: Submits) -> str:
    told = []
    for name, account in (("daemon", DEFAULT_ACCOUNT), ("scripts", SCRIPTS_ACCOUNT)):
        earlier, now = before.get(account, (0, 0)), after[account]
        told.append(f"{name} {(now[1] - earlier[1]) / (now[0] - earlier[0]):.2f}")
    return f"{clients} clients: links to a submit upstream: {', '.join(told)}"


def _compared_2(
    clients: int, found: Mapping[str, Sequence[float]], goal: Goal
) -> Iterator[Comparison]:
    what = f"{clients} client{'s' if clients > 1 else ''}"
    ours = Series("daemon", "/s", found["daemon"])
    for script, name in NAMES.items():
        if script in found:
            theirs = Series(name, "/s", found[script])
            wanted = goal if script == "kept" else NO_GOAL
            yield Comparison(f"{what}, beside {name}", ours, theirs, "more", wanted)


# Asking


def _daemon_client(served: Daemon) -> Asking:
    return Asking(served.url, {"Authorization": f"Bearer {served.token}"})


def _portal_client(portal: Origins) -> Asking:
    """A client of the portal with a session, as its own page has."""
    return Asking(
        portal.portal,
        {
            "Cookie": cookie_header(SCRIPTS_ACCOUNT),
            "csrf-token": cookies_of(SCRIPTS_ACCOUNT)["csrftoken"],
            "affiliate-program-type": "1",
        },
    )


def _ask_daemon(served: Asking, order: Order) -> None:
    links, sub_ids = order
    mapping = served.post("/api/convert", {"links": links, "subIds": sub_ids})["mapping"]
    if not all(entry["failCode"] == 0 for entry in mapping.values()):
        raise ValueError(f"{links} became {mapping}")


def _ask_nothing(served: Asking) -> None:
    served.get("/api/health")


def _ask_portal(portal: Asking, order: Order) -> None:
    """The submits that an order takes, without a browser."""
    links, (sub_id,) = order
    for start in range(0, len(links), CHUNK):
        params = [
            {"originalLink": one, "advancedLinkParams": {"subId1": sub_id}}
            for one in links[start : start + CHUNK]
        ]
        body = {
            "operationName": "batchGetCustomLink",
            "query": QUERY,
            "variables": {"linkParams": params, "sourceCaller": "CUSTOM_LINK_CALLER"},
        }
        rows = portal.post("/api/v3/gql?q=batchCustomLink", body)["data"]["batchCustomLink"]
        if not all(row["shortLink"] for row in rows):
            raise ValueError(f"{links} became {rows}")
