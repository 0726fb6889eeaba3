"""Row 7: memory of the daemon and its Chromium, beside a Playwright script and its Chromium.

A Playwright script is two programs: Python, and a driver in Node. The daemon's side has the reaper
of its Chromium and the fork server. Both sides run at the same time and are sampled in turns, at
rest. The size is the proportional set size (PSS). The kernel shows it only to a process that may
trace the other one; if it is hidden for any process, RssAnon is used for all.
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
from bench.scripted import Order, ScriptProcess, script_process
from bench.stage import ask_daemon, connect
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
"""Seconds at rest before a sample: Chromium frees memory when it is idle."""
LOOK_EVERY: Final = 0.2
ENDED: Final = (FileNotFoundError, ProcessLookupError)
"""Errors that mean that the process has ended."""

OURS, OUR_CHROMIUM = "daemon", "daemon's Chromium"
THEIRS, THEIR_CHROMIUM = "Playwright", "Playwright's Chromium"

GOALS: Final = ((OURS, THEIRS, Goal(at_most=0.5)), (OUR_CHROMIUM, THEIR_CHROMIUM, Goal(at_most=1)))
FLAT: Final = Goal(at_most=1.05)
"""For the size after 1000 conversions divided by the size after the first 100."""

Sizes = Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class Measure:
    """The figure that counts as a process's size: a field of a file in `/proc/PID`."""

    file: str
    field: str
    note: str


PSS: Final = Measure(
    "smaps_rollup", "Pss", "What programs share is divided among those who share it (PSS)."
)
ANONYMOUS: Final = Measure(
    "status",
    "RssAnon",
    "Of all programs the anonymous pages (RssAnon): PSS is not shown of all of them to this user.",
)


def row_7(plan: Plan) -> Row:
    """Measure the megabytes at rest: before any work, after some conversions, and after many."""
    many, few = (QUICK, QUICK_WARM_UP) if plan.quick else (CONVERSIONS, WARM_UP)
    with ExitStack() as programs:
        portal = programs.enter_context(sandbox(plan.folder / "portal"))
        products = {"products": {"source": "none"}}
        served = programs.enter_context(daemon(plan.folder / "daemon", portal, products))
        served.ask("POST", "/api/sync-cookie", {"cookie": cookie_header()})
        scripts = programs.enter_context(script_process(plan.folder / "playwright", portal))
        orders: Iterator[Order] = (([link(portal, item)], []) for item in count(1_000_000))
        scripts.convert("kept", "form", [])  # the script opens its page at its first call
        measure = choose_measure([served.pid, scripts.pid])
        look = partial(_sample, plan, measure, served.pid, scripts.pid)
        idle = look("idle")
        _convert_on_both(plan, few, orders, served, scripts)
        warm = look(f"after {few}")
        _convert_on_both(plan, many - few, orders, served, scripts)
        worked = look(f"after {many}")
    return Row(
        7,
        f"Memory with Chromium idle, and after {many} conversions",
        [
            *_compare_sides("idle", idle),
            *_compare_sides(f"after {many}", worked),
            *_compare_growth(few, many, warm, worked, NO_GOAL if plan.quick else FLAT),
        ],
        [
            measure.note,
            "Without Chromium: the daemon, Chromium's reaper and the fork server; "
            "Playwright's script and driver.",
            "Idle, either has one page open: the script its portal's, from its start; the daemon "
            "the one by which it sees that the browser works, and after that its portal's as well.",
        ],
    )


def _convert_on_both(
    plan: Plan, number: int, orders: Iterator[Order], served: Daemon, scripts: ScriptProcess
) -> None:
    """Run `number` conversions on each side, both at once. Nothing is timed."""
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
    with connect(served) as client:
        for order in orders:
            ask_daemon(client, order)


def choose_measure(roots: Sequence[int]) -> Measure:
    """Return PSS if it is readable for all these processes and their descendants, else RssAnon."""
    for pid in chain.from_iterable(map(_tree, roots)):
        with suppress(*ENDED):
            try:
                fields(f"/proc/{pid}/{PSS.file}")
            except PermissionError:
                return ANONYMOUS
    return PSS


def _sample(plan: Plan, measure: Measure, ours: int, theirs: int, what: str) -> Sizes:
    """Return some samples of each part in megabytes, taken at rest."""
    time.sleep(QUICK_REST if plan.quick else REST)  # no event says that garbage was collected
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
        time.sleep(LOOK_EVERY)  # the samples are spread over some time
    plan.tell(f"{what}: looked at")
    return found


def size(measure: Measure, root: int, *, browser: bool) -> float:
    """Return the megabytes of a process and its descendants: Chromium's processes, or the others.

    Raises `PermissionError` if the measure is hidden for one of them.
    """
    program = os.fsencode(chromium())
    total = 0.0
    for pid in _tree(root):
        with suppress(*ENDED):
            # Chromium's children rewrite their command lines, with spaces between the words.
            if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(program) is browser:
                total += fields(f"/proc/{pid}/{measure.file}").get(measure.field, 0)
    return total * 1024 / 1e6


def _tree(root: int) -> Iterator[int]:
    yield root
    for child in children(root):
        yield from _tree(child)


def _compare_sides(when: str, sizes: Sizes) -> Iterator[Comparison]:
    for ours, theirs, goal in GOALS:
        what = "Chromium" if ours == OUR_CHROMIUM else "without Chromium"
        yield Comparison(
            f"{what}, {when}",
            Series(ours, "MB", sizes[ours]),
            Series(theirs, "MB", sizes[theirs]),
            goal=goal,
        )


def _compare_growth(
    few: int, many: int, before: Sizes, after: Sizes, flat: Goal
) -> Iterator[Comparison]:
    """Compare each side with itself. Playwright's has no goal."""
    for side in before:
        yield Comparison(
            f"{side}: after {many} beside after {few}",
            Series(f"after {many}", "MB", after[side]),
            Series(f"after {few}", "MB", before[side]),
            goal=flat if side in (OURS, OUR_CHROMIUM) else NO_GOAL,
        )
