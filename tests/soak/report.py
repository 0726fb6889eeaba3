"""The output of a soak: its progress, the verdicts, and a CSV file of the samples."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from math import isinf
from pathlib import Path
from typing import Final

from tests.soak.fit import Slope
from tests.soak.judgement import Finding, Verdict, findings
from tests.soak.running import Soak
from tests.soak.samples import Sample

PER: Final = 1000
"""Conversions for which the growth of a count is printed."""
MOST_ERRORS: Final = 50
"""The most errors in a report. Each was printed when it happened."""
HELD, FAILED, UNDECIDED = 0, 1, 3
"""Exit codes; 2 is for wrong usage."""


def exit_code(soak: Soak) -> int:
    """Return the exit code of the run."""
    verdicts = {finding.verdict for finding in findings(soak.samples)}
    if soak.results.errors or Verdict.BROKEN in verdicts:
        return FAILED
    return UNDECIDED if Verdict.UNDECIDED in verdicts else HELD


def text(soak: Soak) -> str:
    return "\n".join(_lines(soak))


def progress(sample: Sample) -> str:
    """Return a line about the newest sample."""
    values = sample.values
    return (
        f"{sample.at / 60:6.1f} min  {_counted(sample.jobs)}  |  daemon"
        f" {values['daemon private'] / 1000:.2f} MB {values['daemon descriptors']:g} fds"
        f" {values['daemon tasks']:g} tasks  chromium {sample.generation + 1}:"
        f" {values['tree processes']:g} processes {values['tree private'] / 1000:.0f} MB"
    )


def append(sample: Sample, file: Path) -> None:
    """Append a line to the CSV file, which is created for the first sample."""
    row = sample.row()
    with file.open("a", encoding="utf-8", newline="") as lines:
        writer = csv.DictWriter(lines, list(row))
        if lines.tell() == 0:
            writer.writeheader()
        writer.writerow(row)


def _lines(soak: Soak) -> Iterator[str]:
    last, results = soak.samples[-1], soak.results
    yield f"soak of {last.at / 60:.1f} minutes, seed {soak.seed}, {len(soak.samples)} samples"
    yield f"  jobs    {_counted(last.jobs)}"
    yield f"  with    {_counted(dict(sorted(results.others.items())))}"
    sandbox = "" if soak.sandboxed else ", without a sandbox, which this machine does not allow"
    restarts = f"{last.values['browser restarts']:g} restarts"
    yield f"  in      {last.generation + 1} Chromiums{sandbox}; {restarts}\n"
    for finding in findings(soak.samples):
        yield f"  {finding.verdict:<18}{finding.what}: {_growth(finding)}"
    yield f"\n{len(results.errors)} errors"
    yield from (f"  {error}" for error in results.errors[:MOST_ERRORS])


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {what}" for what, count in counts.items())


def _growth(finding: Finding) -> str:
    if not finding.limit:
        return f"{_shown(finding.slope * PER)} per {PER} conversions (flat is the limit)"
    return f"{_shown(finding.slope)} {finding.unit} a conversion (at most {finding.limit:g})"


def _shown(found: Slope) -> str:
    if isinf(found.low) and isinf(found.high):
        return "-"
    return f"{_number(found.value)} ({_number(found.low)} … {_number(found.high)})"


def _number(number: float) -> str:
    if isinf(number):
        return "?"
    return f"{number:+.0f}" if abs(number) >= 100 else f"{number:+.2g}" if number else "0"
