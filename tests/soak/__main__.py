"""`./run soak`: run a soak, print a report, and write the samples to a folder.

Exit codes: 0 all limits held; 1 a limit is broken, an answer was wrong, or a signal ended the run;
3 nothing was wrong, but the run was too short to show that the limits hold.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import trio

from bench.daemons import unsandboxed
from tests.programs import ending_signals
from tests.soak import report
from tests.soak.running import Soak, soak
from tests.soak.samples import Sample

MINUTES = 30.0


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="./run soak",
        description="Run conversions, logins, kickoffs, cookie syncs and crashes for a while, and "
        "measure how much the daemon and its Chromium grow.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--minutes", type=float, default=MINUTES, help=f"length of the soak ({MINUTES:g})"
    )
    parser.add_argument("--seed", type=int, help="seed of the jobs (a random one)")
    parser.add_argument("--out", type=Path, help="folder for the samples (a new one)")
    chosen = parser.parse_args()
    seed = random.randrange(10**6) if chosen.seed is None else chosen.seed
    folder = chosen.out or Path(tempfile.mkdtemp(prefix="smartlinkd-soak-results-"))
    folder.mkdir(parents=True, exist_ok=True)
    print(f"soak: {chosen.minutes:g} minutes, seed {seed}; results in {folder}", flush=True)
    return _run(Soak(chosen.minutes, seed, not unsandboxed()), folder)


def _run(result: Soak, folder: Path) -> int:
    def on_sample(sample: Sample) -> None:
        report.append(sample, folder / "samples.csv")
        print(report.progress(sample), flush=True)

    (folder / "samples.csv").unlink(missing_ok=True)
    early = trio.run(
        _run_until_signal, partial(soak, result, folder / "daemon.log", on_sample=on_sample)
    )
    if result.samples:  # before any output: the terminal may be closed
        (folder / "report.txt").write_text(report.text(result) + "\n", encoding="utf-8")
    if early:
        print("\nended early; the samples until now:", flush=True)
    if not result.samples:
        print("there is no sample: the daemon was never idle")
        return report.FAILED
    print(f"\n{report.text(result)}")
    return report.FAILED if early else report.exit_code(result)


async def _run_until_signal(run: Callable[[], Awaitable[None]]) -> bool:
    """Call `run` until it returns or a signal comes. Return True after a signal."""
    endings = ending_signals()
    for number in endings:
        # trio raises later signals again when the receiver closes; a closed terminal sends two.
        signal.signal(number, signal.SIG_IGN)
    early = True
    with trio.open_signal_receiver(*endings) as signals:
        async with trio.open_nursery() as nursery:

            async def wait_for_signal() -> None:
                await anext(signals)
                nursery.cancel_scope.cancel()

            nursery.start_soon(wait_for_signal)
            await run()
            early = False
            nursery.cancel_scope.cancel()
    return early


if __name__ == "__main__":
    sys.exit(main())
