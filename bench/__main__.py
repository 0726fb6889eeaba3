"""`./run bench`: measure all rows, print ratios, and write figures and plots to a folder.

Exit codes: 0 if all goals are met; 1 if a goal is missed or a row failed; 128 plus the signal's
number if a signal ended the run.

The rows run one after the other, because two at once would disturb each other. A row that fails
does not stop the others: its traceback is in the results, which are saved after each row.
"""

from __future__ import annotations

import argparse
import importlib
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from bench import report, versions
from bench.daemons import new_folder
from bench.measure import Plan, Row
from tests.programs import ending_signals

ROWS: Final = {
    1: "bench.conversions:row_1",
    2: "bench.crowds:row_2",
    3: "bench.crowds:row_3",
    4: "bench.startup:row_4",
    5: "bench.startup:row_5",
    6: "bench.http:row_6",
    7: "bench.memory:row_7",
    8: "bench.crews:row_8",
    9: "bench.growth:row_9",
    10: "bench.history:row_10",
}
"""Each row's `module:function`. The function takes a `Plan` and returns a `Row`. A module is
imported when its row runs, because some rows need packages that others do not need."""

RESULTS: Final = Path("bench/results.json")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="./run bench",
        description="The daemon's speed beside what a user would take instead.",
        allow_abbrev=False,
    )
    parser.add_argument("--only", type=_rows, default=list(ROWS), help="rows, as in 1,6")
    parser.add_argument("--quick", action="store_true", help="a peek: too few rounds to go by")
    parser.add_argument("--out", type=Path, default=RESULTS.parent, help=f"({RESULTS.parent})")
    chosen = parser.parse_args()
    # Versions are collected before anything is measured, and before `_end` handles signals: `_end`
    # cannot end trio's run in `versions.collect`.
    found = versions.collect()
    for one in ending_signals():
        signal.signal(one, _end)
    chosen.out.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    failures: dict[int, str] = {}
    for place, number in enumerate(chosen.only, start=1):
        try:
            rows.append(_measured(number, quick=chosen.quick))
        except Exception:  # noqa: BLE001 - the other rows can still run
            failures[number] = traceback.format_exc()
            print(failures[number], file=sys.stderr, flush=True)
        else:
            print(report.text([rows[-1]]), flush=True)
        is_last = place == len(chosen.only)
        results = report.results(rows, failures, found, quick=chosen.quick, complete=is_last)
        report.save(results, chosen.out)
    print(f"\n{report.summary(results)}\n\nreport: {report.draw(results, chosen.out)}")
    return 0 if report.all_met(results) else 1


def _end(number: int, _frame: object) -> None:
    """End every program that was started. Later signals are ignored, because they would interrupt
    the clean-up; a closed terminal sends two."""
    for one in ending_signals():
        signal.signal(one, signal.SIG_IGN)
    sys.exit(128 + number)


def _measured(number: int, *, quick: bool) -> Row:
    module, _, name = ROWS[number].partition(":")
    measure: Callable[[Plan], Row] = getattr(importlib.import_module(module), name)
    folder = new_folder()
    began = time.monotonic()
    try:
        return measure(Plan(folder, quick, partial(_tell, began, number)))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _tell(began: float, number: int, text: str) -> None:
    print(f"  {time.monotonic() - began:5.1f} s  row {number}: {text}", flush=True)


def _rows(text: str) -> list[int]:
    numbers = [int(word) for word in text.split(",")]
    if not set(numbers) <= ROWS.keys():
        raise argparse.ArgumentTypeError(f"rows are {', '.join(map(str, ROWS))}")
    return numbers


if __name__ == "__main__":
    sys.exit(main())
