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
from functools import partial

from tests.simulation.run import TAIL, Outcome, simulate

DAY = 24.0
SEEDS_PER_PROCESS = 4
"""Seeds that one process simulates before it is replaced: the simulation's own memory grows."""


def main() -> int:
    """Return the exit code: 1 when a seed failed."""
    asked = _parser().parse_args()
    seeds = range(asked.seed, asked.seed + asked.seeds)
    outcomes: list[Outcome] = []
    began = time.monotonic()
    with multiprocessing.get_context("spawn").Pool(
        min(asked.processes, len(seeds)), maxtasksperchild=SEEDS_PER_PROCESS
    ) as pool:
        for outcome in pool.imap_unordered(partial(simulate, hours=asked.hours), seeds):
            outcomes.append(outcome)
            print(f"[{len(outcomes)}/{len(seeds)}] {outcome}", flush=True)
            if outcome.failures:
                print(outcome.description(asked.events), flush=True)
    print(f"\n{len(seeds)} seeds of {asked.hours:g} h, in {time.monotonic() - began:.0f} s")
    for name, count in sorted(sum((each.counts for each in outcomes), Counter[str]()).items()):
        print(f"{count:9} {name}")
    failed = [outcome.replay for outcome in outcomes if outcome.failures]
    print(f"{len(failed):9} seeds failed", *failed, sep=f"\n{'':10}")
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="./run simulate", description="Simulate days of the daemon, one a seed."
    )
    add = parser.add_argument
    add("--seeds", type=int, default=1, metavar="N", help="number of seeds (1)")
    add("--seed", type=int, default=1, metavar="K", help="the first seed (1)")
    add("--hours", type=float, default=DAY, metavar="H", help="hours of each seed (24)")
    add("--events", type=int, default=TAIL, help=f"events printed of a failed seed ({TAIL})")
    cores = os.cpu_count() or 1
    add("--processes", type=int, default=cores, help="processes at a time (one a core)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
