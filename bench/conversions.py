"""Row 1: the time that a warm conversion adds to the portal's own answer, beside scripts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from statistics import median
from typing import Final

from bench.asking import JsonClient
from bench.measure import Comparison, Goal, Plan, Row, Series, interleave
from bench.peers.playwright_kept import CHUNK, QUERY
from bench.scripted import ACCOUNT as SCRIPTS_ACCOUNT
from bench.scripted import Order, Script
from bench.stage import NAMES, Method, Setup, ask_daemon, connect, progress_of, set_up, timed
from smartlinkd.sandbox.batch import Origins
from smartlinkd.sandbox.session import cookie_header, cookies_of

METHODS: Final[tuple[Method, ...]] = ("form", "fetch")
SIZES: Final = (1, 5, 15)
"""Links in a request."""
GOALS: Final[Mapping[Script, Goal]] = {"kept": Goal(at_most=0.5), "each": Goal(at_most=0.1)}


def row_1(plan: Plan) -> Row:
    """Measure the time that a conversion adds to the portal's own answer."""
    rounds, times = plan.rounds(14, 2), plan.rounds(5, 3)
    comparisons: list[Comparison] = []
    with set_up(plan, METHODS) as setup, ExitStack() as clients:
        portal = clients.enter_context(_portal_client(setup.portal))
        for method in METHODS:
            ours = clients.enter_context(connect(setup.daemons[method]))
            for size in SIZES:
                sides = _sides(setup, method, size, ours, portal, times=times)
                for side in sides.values():
                    side()  # a warm-up that is not measured
                found = interleave(sides, rounds, progress_of(plan, f"{method}, links: {size}"))
                comparisons += _comparisons(method, size, found)
    return Row(
        1,
        "Warm conversion: what is added to the portal's own answer",
        comparisons,
        [
            "Added is what a conversion took, less what the same submits take a bare HTTP client "
            "in the same round; Chromium's own part is in it on both sides.",
            "The daemon is asked over HTTP; the scripts are called in their own process.",
            "The floor: one message for each submit over the websocket of a kept page, sent by a "
            "program that does nothing else and hears of nothing else, in a Chromium with the "
            "daemon's flags.",
        ],
    )


Side = Callable[[], float]


def _sides(
    setup: Setup,
    method: Method,
    size: int,
    ours: JsonClient,
    portal: JsonClient,
    *,
    times: int,
) -> dict[str, Side]:
    """Return a function for each side: it measures some conversions and returns the median in
    seconds."""
    links, scripts = setup.links, setup.scripts

    def script(name: Script, times: int) -> float:
        return median(scripts.convert(name, method, [links.orders(times, size)]).orders)

    def by_daemon() -> float:
        return median(
            timed(ours, partial(ask_daemon, order=order)) for order in links.orders(times, size)
        )

    def by_portal() -> float:
        return median(
            timed(portal, partial(_ask_portal, order=order)) for order in links.orders(times, size)
        )

    return {
        "daemon": by_daemon,
        "kept": lambda: script("kept", times),
        "each": lambda: script("each", 2),
        "bare": lambda: script("bare", times),
        "portal": by_portal,
    }


def _comparisons(
    method: Method, size: int, found: Mapping[str, Sequence[float]]
) -> Iterator[Comparison]:
    def added(side: str, name: str) -> Series:
        pairs = zip(found[side], found["portal"], strict=True)
        return Series(name, "s", [max(took - portal, 1e-6) for took, portal in pairs])

    what = f"{method}, {size} link{'s' if size > 1 else ''}"
    for script, goal in GOALS.items():
        yield Comparison(
            what,
            added("daemon", "daemon"),
            added(script, NAMES[script]),
            goal=goal,
            floor=added("bare", "one message"),
        )


def _portal_client(portal: Origins) -> JsonClient:
    """Return a client of the portal with the headers and the session of the portal's own page."""
    return JsonClient(
        portal.portal,
        {
            "Cookie": cookie_header(SCRIPTS_ACCOUNT),
            "csrf-token": cookies_of(SCRIPTS_ACCOUNT)["csrftoken"],
            "affiliate-program-type": "1",
        },
    )


def _ask_portal(portal: JsonClient, order: Order) -> None:
    """Send an order's submits to the portal without a browser."""
    links, (sub_id,) = order
    for start in range(0, len(links), CHUNK):
        chunk = links[start : start + CHUNK]
        params = [{"originalLink": one, "advancedLinkParams": {"subId1": sub_id}} for one in chunk]
        body = {
            "operationName": "batchGetCustomLink",
            "query": QUERY,
            "variables": {"linkParams": params, "sourceCaller": "CUSTOM_LINK_CALLER"},
        }
        rows = portal.post("/api/v3/gql?q=batchCustomLink", body)["data"]["batchCustomLink"]
        if len({row["shortLink"] for row in rows if row["shortLink"]}) != len(chunk):
            raise ValueError(f"{chunk} became {rows}")
