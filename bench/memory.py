"""Row 7: what the daemon and its Chromium hold in memory, beside a Playwright script.

A Playwright script is two programs: Python, and a driver in Node that speaks with Chromium. Beside
them stands the daemon with the reaper of its Chromium, and the server that reapers are forked
by. Both sides run at the same time, and are looked at in turns, at rest: what programs share is
divided among all that share it, so it counts for as much on both sides.

Of each process the proportional set size counts. The kernel shows it only to who may look into a
process, and the daemon hides from its own user's other processes. Where it is not shown of one of
them, the anonymous pages count, of all and on both sides: else the two could not be compared.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Any, Final

from bench.daemons import Daemon, chromium, daemon, link
from bench.measure import NO_GOAL, Comparison, Goal, Plan, Row, Series, interleave
from bench.scripted import Order, Scripted, scripted
from bench.stage import ask_daemon, daemon_client
from smartlinkd.sandbox.session import cookie_header
from tests.programs import sandbox
from tests.soak.memory import fields
from tests.soak.samples import children

CONVERSIONS: Final = 1000
WARM_UP: Final = 100
QUICK: Final = 60
QUICK_WARM_UP: Final = 20
REST: Final = 10.0
QUICK_REST: Final = 2.0
"""Seconds in which nothing is asked before anybody looks: Chromium tidies up when it is idle."""
LOOK_EVERY: Final = 0.2
ENDED: Final = (FileNotFoundError, ProcessLookupError)
"""What it means for a process that is looked at."""

OURS, OUR_CHROMIUM = "daemon", "daemon's Chromium"
THEIRS, THEIR_CHROMIUM = "Playwright", "Playwright's Chromium"

GOALS: Final = ((OURS, THEIRS, Goal(at_most=0.5)), (OUR_CHROMIUM, THEIR_CHROMIUM, Goal(at_most=1)))
FLAT: Final = Goal(at_most=1.05)
"""After a thousand conversions beside after the first hundred."""

Sizes = Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class Measure:
    """What counts as a process's size."""

    file: str
    field: str
    told: str


PSS: Final = Measure(
    "smaps_rollup", "Pss", "What programs share is divided among those who share it (PSS)."
)
ANONYMOUS: Final = Measure(
    "status",
    "RssAnon",
    "Of all programs the anonymous pages (RssAnon): PSS is not shown of all of them to this user.",
)


def row_7(plan: Plan) -> Row:
    """Megabytes at rest: with nothing done yet, after some conversions, and after many."""
    many, few = (QUICK, QUICK_WARM_UP) if plan.quick else (CONVERSIONS, WARM_UP)
    with ExitStack() as programs:
        portal = programs.enter_context(sandbox(plan.folder / "portal"))
        products = {"products": {"source": "none"}}
        served = programs.enter_context(daemon(plan.folder / "daemon", portal, products))
        served.ask("POST", "/api/sync-cookie", {"cookie": cookie_header()})
        scripts = programs.enter_context(scripted(plan.folder / "playwright", portal))
        orders: Iterator[Order] = (([link(portal, item)], []) for item in count(1_000_000))
        scripts.convert("kept", "form", [])  # the script opens its page when it begins
        measure = measure_of([served.pid, scripts.pid])
        look = partial(_look, plan, measure, served.pid, scripts.pid)
        idle = look("idle")
        _work(plan, few, orders, served, scripts)
        warm = look(f"after {few}")
        _work(plan, many - few, orders, served, scripts)
        worked = look(f"after {many}")
    return Row(
        7,
        f"Memory with Chromium idle, and after {many} conversions",
        [
            *_beside("idle", idle),
            *_beside(f"after {many}", worked),
            *_grown(few, many, warm, worked, NO_GOAL if plan.quick else FLAT),
        ],
        [
            measure.told,
            "Without Chromium: the daemon, Chromium's reaper and the fork server; "
            "Playwright's script and driver.",
            "Idle, either has one page open: the script its portal's, from its start; the daemon "
            "the one by which it sees that the browser works, and after that its portal's as well.",
        ],
    )


def _work(
    plan: Plan, number: int, orders: Iterator[Order], served: Daemon, scripts: Scripted
) -> None:
    """So many conversions by each side, both at once: nobody takes the time."""
    plan.tell(f"{number} conversions")
    ours, theirs = ([next(orders) for _ in range(number)] for _ in range(2))
    with ThreadPoolExecutor(2) as both:
        done: list[Future[Any]] = [
            both.submit(_convert, served, ours),
            both.submit(scripts.convert, "kept", "form", [theirs]),
        ]
    for one in done:
        one.result()


def _convert(served: Daemon, orders: Sequence[Order]) -> None:
    with daemon_client(served) as asking:
        for order in orders:
            ask_daemon(asking, order)


def measure_of(roots: Sequence[int]) -> Measure:
    """One that is shown of all these processes, and of all below them."""
    for pid in chain.from_iterable(map(_tree, roots)):
        with suppress(*ENDED):
            try:
                fields(f"/proc/{pid}/{PSS.file}")
            except PermissionError:
                return ANONYMOUS
    return PSS


def _look(plan: Plan, measure: Measure, ours: int, theirs: int, what: str) -> Sizes:
    """Megabytes of each part, some times over, once all is at rest."""
    time.sleep(QUICK_REST if plan.quick else REST)  # nothing tells that garbage is collected
    sides: dict[str, Callable[[], float]] = {
        OURS: partial(size, measure, ours, browser=False),
        THEIRS: partial(size, measure, theirs, browser=False),
        OUR_CHROMIUM: partial(size, measure, ours, browser=True),
        THEIR_CHROMIUM: partial(size, measure, theirs, browser=True),
    }
    found: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(plan.rounds(7, 3)):
        for side, values in interleave(sides, 1).items():
            found[side] += values
        time.sleep(LOOK_EVERY)  # so that the looks are not all of one moment
    plan.tell(f"{what}: looked at")
    return found


def size(measure: Measure, root: int, *, browser: bool) -> float:
    """Megabytes of a process and all below it: of Chromium's processes, or of the others.

    Raises `PermissionError` for one of which the measure is not shown.
    """
    program = os.fsencode(chromium())
    total = 0.0
    for pid in _tree(root):
        with suppress(*ENDED):
            # Its own children write their words anew, with spaces between them.
            if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(program) is browser:
                total += fields(f"/proc/{pid}/{measure.file}").get(measure.field, 0)
    return total * 1024 / 1e6


def _tree(root: int) -> Iterator[int]:
    yield root
    for child in children(root):
        yield from _tree(child)


def _beside(when: str, sizes: Sizes) -> Iterator[Comparison]:
    for ours, theirs, goal in GOALS:
        what = "Chromium" if ours == OUR_CHROMIUM else "without Chromium"
        yield Comparison(
            f"{what}, {when}",
            Series(ours, "MB", sizes[ours]),
            Series(theirs, "MB", sizes[theirs]),
            goal=goal,
        )


def _grown(few: int, many: int, before: Sizes, after: Sizes, flat: Goal) -> Iterator[Comparison]:
    """Each beside itself. What Playwright's side does is told, and no goal."""
    for side in before:
        yield Comparison(
            f"{side}: after {many} beside after {few}",
            Series(f"after {many}", "MB", after[side]),
            Series(f"after {few}", "MB", before[side]),
            goal=flat if side in (OURS, OUR_CHROMIUM) else NO_GOAL,
        )
