"""Rows 2 and 3: conversions a second with many clients, with and without mergeable links."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from functools import partial
from typing import Final

from bench.asking import JsonClient
from bench.daemons import Daemon, ask_portal
from bench.measure import NO_GOAL, Comparison, Goal, Plan, Row, Series, interleave
from bench.scripted import ACCOUNT as SCRIPTS_ACCOUNT
from bench.scripted import Done, Order, Script
from bench.stage import NAMES, SUB_ID, Setup, ask_daemon, connect, progress_of, set_up, timed
from smartlinkd.sandbox.batch import Origins
from smartlinkd.sandbox.session import DEFAULT_ACCOUNT

PORTAL_MS: Final = 100
"""Milliseconds after which the portal answers a submit."""
CLIENTS: Final = (1, 4, 16, 32, 64)
CROWD: Final = 32
"""Number of clients from which merging has to show."""
PLENTY: Final = 30
"""Orders of a client: more than it can finish in the time."""

Side = Callable[[], float]


def row_2(plan: Plan) -> Row:
    """Measure the throughput where merging helps."""
    comparisons, notes = _throughput(plan, lambda _client: SUB_ID, _goal_2)
    return Row(
        2,
        f"Conversions a second, one link each, the portal answering in {PORTAL_MS} ms",
        comparisons,
        notes,
    )


def row_3(plan: Plan) -> Row:
    """Measure the throughput where nothing can be merged."""
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
    with set_up(plan, ["form"]) as setup:
        ask_portal(setup.portal, "POST", "delay", {"submit_ms": PORTAL_MS})
        for clients in counts:
            crowd = _Clients(setup, [sub_id(client) for client in range(clients)], seconds)
            sides: dict[str, Side] = {"daemon": crowd.rate_of_daemon, "kept": crowd.rate_of_kept}
            if clients in (1, CROWD):
                sides["each"] = crowd.rate_of_each
            before = _submits(setup.portal)
            found = interleave(sides, rounds, progress_of(plan, f"clients: {clients}"))
            comparisons += _comparisons(clients, found, goal(clients))
            notes.append(_submits_note(clients, before, _submits(setup.portal)))
    return comparisons, notes


class _Clients:
    """Clients that convert links one by one for `seconds`. Methods return conversions a second."""

    def __init__(self, setup: Setup, sub_ids: Sequence[str], seconds: float) -> None:
        self._setup = setup
        self._sub_ids = sub_ids
        self._seconds = seconds

    def rate_of_daemon(self) -> float:
        served = self._setup.daemons["form"]
        with connect(served) as warming:
            ask_daemon(warming, self._order())
        return _rate(_run_clients(served, self._orders(), self._seconds))

    def rate_of_kept(self) -> float:
        return self._rate_of_script("kept")

    def rate_of_each(self) -> float:
        return self._rate_of_script("each")

    def _rate_of_script(self, script: Script) -> float:
        scripts = self._setup.scripts
        scripts.convert(script, "form", [[self._order()]])
        return _rate(scripts.convert(script, "form", self._orders(), self._seconds))

    def _order(self) -> Order:
        return (self._setup.links.new_links(1), self._sub_ids[:1])

    def _orders(self) -> list[list[Order]]:
        return [self._setup.links.orders(PLENTY, 1, sub_id) for sub_id in self._sub_ids]


def _rate(done: Done) -> float:
    return len(done.orders) / done.seconds if done.orders else 0.0


def _run_clients(served: Daemon, clients: Sequence[Sequence[Order]], seconds: float) -> Done:
    """Run each client's orders on its own connection; stop all clients after `seconds`."""
    took: list[float] = []
    ended = [0.0]
    leaving = threading.Event()
    began = time.perf_counter()

    def run_client(client: JsonClient, orders: Sequence[Order]) -> None:
        for order in orders:
            if leaving.is_set():
                return
            try:
                one = timed(client, partial(ask_daemon, order=order))
            except OSError:
                if leaving.is_set():
                    return  # the main thread has ended the connection
                raise
            if leaving.is_set():
                return
            ended[0] = time.perf_counter() - began
            took.append(one)

    connections = [connect(served) for _ in clients]
    with ThreadPoolExecutor(len(clients)) as threads:
        working = [
            threads.submit(run_client, *pair) for pair in zip(connections, clients, strict=True)
        ]
        try:
            wait(working, seconds, FIRST_EXCEPTION)
        finally:  # also if the run is ended: else the pool would wait for every order
            leaving.set()
            for connection in connections:
                connection.abort()
    for connection in connections:
        connection.close()
    for work in working:
        work.result()
    return Done(took, ended[0])


Submits = Mapping[str, tuple[int, int]]
"""The submits of each account, and the links in them."""


def _submits(portal: Origins) -> Submits:
    accounts = ask_portal(portal, "GET", "log")["accounts"]
    return {name: (seen["submits"], seen["links"]) for name, seen in accounts.items()}


def _submits_note(clients: int, before: Submits, after: Submits) -> str:
    told = []
    for name, account in (("daemon", DEFAULT_ACCOUNT), ("scripts", SCRIPTS_ACCOUNT)):
        earlier, now = before.get(account, (0, 0)), after[account]
        told.append(f"{name} {(now[1] - earlier[1]) / (now[0] - earlier[0]):.2f}")
    return f"{clients} clients: links to a submit upstream: {', '.join(told)}"


def _comparisons(
    clients: int, found: Mapping[str, Sequence[float]], goal: Goal
) -> Iterator[Comparison]:
    what = f"{clients} client{'s' if clients > 1 else ''}"
    ours = Series("daemon", "/s", found["daemon"])
    for script, name in NAMES.items():
        if script in found:
            theirs = Series(name, "/s", found[script])
            wanted = goal if script == "kept" else NO_GOAL
            yield Comparison(what, ours, theirs, "more", wanted)
