"""`./run soak`: run a soak, tell what came of it, and leave the samples in a folder.

Exit codes: 0 all limits held; 1 one is broken, an answer was wrong, or it was ended early; 3
nothing was wrong, but the run was too short to show that the limits hold.
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
        description="Conversions, logins, kickoffs, cookie syncs and crashes, for a while: what "
        "does the daemon grow by, and its Chromium?",
        allow_abbrev=False,
    )
    parser.add_argument("--minutes", type=_minutes, default=MINUTES, help=f"({MINUTES:g})")
    parser.add_argument("--seed", type=int, help="of the jobs (any; it is printed)")
    parser.add_argument("--out", type=Path, help="where the samples go (a new folder)")
    chosen = parser.parse_args()
    seed = random.randrange(10**6) if chosen.seed is None else chosen.seed
    folder = chosen.out or Path(tempfile.mkdtemp(prefix="smartlinkd-soak-results-"))
    folder.mkdir(parents=True, exist_ok=True)
    print(f"soak: {chosen.minutes:g} minutes, seed {seed}; results in {folder}", flush=True)
    return _run(Soak(chosen.minutes, seed, not unsandboxed()), folder)


def _run(result: Soak, folder: Path) -> int:
    def tell(sample: Sample) -> None:
        report.append(sample, folder / "samples.csv")
        print(report.progress(sample), flush=True)

    (folder / "samples.csv").unlink(missing_ok=True)
    early = trio.run(_until_told, partial(soak, result, folder / "daemon.log", tell=tell))
    if result.samples:  # before anything is said: the terminal may be what has ended it
        (folder / "report.txt").write_text(report.text(result) + "\n", encoding="utf-8")
    if early:
        print("\nended early; this is what there is", flush=True)
    if not result.samples:
        print("there is no sample: the daemon never came to rest")
        return report.FAILED
    print(f"\n{report.text(result)}")
    return report.FAILED if early else report.exit_code(result)


async def _until_told(run: Callable[[], Awaitable[None]]) -> bool:
    """Run it, but no longer than until somebody wants it to end; whether that was so."""
    early = True
    # trio gives back what came after the first one, a closed terminal's second one for one.
    endings = ending_signals()
    before = {one: signal.signal(one, signal.SIG_IGN) for one in endings}
    try:
        with trio.open_signal_receiver(*endings) as signals:
            async with trio.open_nursery() as nursery:

                async def wait_for_signal() -> None:
                    await anext(signals)
                    nursery.cancel_scope.cancel()

                nursery.start_soon(wait_for_signal)
                await run()
                early = False
                nursery.cancel_scope.cancel()
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
    return early


def _minutes(text: str) -> float:
    minutes = float(text)
    if not 0 < minutes <= 100 * 24 * 60:
        raise argparse.ArgumentTypeError("more than 0, and at most a hundred days")
    return minutes


if __name__ == "__main__":
    sys.exit(main())
