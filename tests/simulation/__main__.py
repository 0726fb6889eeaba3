"""Simulate days of the daemon, one a seed: `./run simulate`.

One process a core simulates the seeds. For a seed that fails, the output has its last events and
the command that repeats it.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial

from tests.simulation.run import TAIL, Outcome, simulate

DAY = 24.0
SEEDS_PER_PROCESS = 4
"""Seeds that one process simulates before it is replaced: the simulation's own memory grows."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code: 1 when a seed failed."""
    asked = _parser().parse_args(arguments)
    seeds = range(asked.seed, asked.seed + asked.seeds)
    outcomes: list[Outcome] = []
    began = time.monotonic()
    with multiprocessing.get_context("spawn").Pool(
        min(asked.processes, len(seeds)), maxtasksperchild=SEEDS_PER_PROCESS
    ) as pool:
        simulate_seed = partial(simulate, hours=asked.hours)
        for outcome in pool.imap_unordered(simulate_seed, seeds):
            outcomes.append(outcome)
            _print_outcome(outcome, f"{len(outcomes)}/{len(seeds)}", asked.events)
    print(_summary(outcomes, asked.hours, time.monotonic() - began))
    return 1 if any(outcome.failures for outcome in outcomes) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="./run simulate", description="Simulate days of the daemon, one a seed."
    )
    parser.add_argument(
        "--seeds", type=_positive, default=1, metavar="N", help="number of seeds (1)"
    )
    parser.add_argument("--seed", type=int, default=1, metavar="K", help="the first seed (1)")
    parser.add_argument(
        "--hours", type=float, default=DAY, metavar="H", help="hours of each seed (24)"
    )
    parser.add_argument(
        "--events", type=_positive, default=TAIL, help=f"events printed of a failed seed ({TAIL})"
    )
    parser.add_argument(
        "--processes",
        type=_positive,
        default=os.cpu_count() or 1,
        help="processes at a time (one a core)",
    )
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


def _print_outcome(outcome: Outcome, progress: str, events: int) -> None:
    counts = outcome.counts
    print(
        f"[{progress}] seed {outcome.seed}: {'FAILED' if outcome.failures else 'fine'}; "
        f"{counts['requests']} requests, {counts['conversions']} links, "
        f"{counts['kickoffs']} kickoffs, {_faults(counts).total()} faults, "
        f"{outcome.seconds:.1f} s, {outcome.digest[:12]}",
        flush=True,
    )
    if outcome.failures:
        print(outcome.description(events), flush=True)


def _summary(outcomes: Sequence[Outcome], hours: float, seconds: float) -> str:
    counts = sum((outcome.counts for outcome in outcomes), Counter[str]())
    faults = _faults(counts)
    failed = [outcome for outcome in outcomes if outcome.failures]
    days = len(outcomes) * hours / 24
    spent = sum(outcome.seconds for outcome in outcomes)
    lines = [
        "",
        f"{len(outcomes)} seeds of {hours:g} h: {days:.2f} days, in {seconds:.0f} s "
        f"({spent / days:.1f} s of processor time a day)",
        *(
            f"{count:9} {name}"
            for name, count in sorted(counts.items())
            if not name.startswith(_FAULT) and name != "simulated hours"
        ),
        f"{faults.total():9} faults, of {len(faults)} kinds:",
        *(f"{count:13} {name}" for name, count in sorted(faults.items())),
        f"{len(failed):9} seeds failed",
        *(f"          {outcome.replay}" for outcome in failed),
    ]
    return "\n".join(lines)


_FAULT = "fault "


def _faults(counts: Counter[str]) -> Counter[str]:
    return Counter(
        {name.removeprefix(_FAULT): n for name, n in counts.items() if name.startswith(_FAULT)}
    )


if __name__ == "__main__":
    sys.exit(main())
