"""The output of a soak: its progress, the verdicts, and a CSV file of the samples."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from math import isinf
from pathlib import Path
from typing import Final

from tests.soak.fit import Slope
from tests.soak.jobs import Kind
from tests.soak.judgement import Finding, Verdict, findings
from tests.soak.running import Soak
from tests.soak.samples import Sample

PER: Final = 1000
"""Conversions for which the growth of a count is printed."""

HELD, FAILED, UNDECIDED = 0, 1, 3
"""Exit codes; 2 is for wrong usage."""


def exit_code(soak: Soak) -> int:
    """Return the exit code of the run."""
    verdicts = {finding.verdict for finding in findings(soak.samples)}
    if soak.results.error_count or Verdict.BROKEN in verdicts:
        return FAILED
    return UNDECIDED if Verdict.UNDECIDED in verdicts else HELD


def text(soak: Soak) -> str:
    return "\n".join([*_counts(soak), *_verdicts(soak), *_errors(soak)])


def progress(sample: Sample) -> str:
    """Return a line about the newest sample."""
    jobs = " ".join(f"{count} {kind}" for kind, count in sample.jobs.items())
    values = sample.values
    return (
        f"{sample.at / 60:6.1f} min  {sample.name:<17} {jobs}  |  daemon"
        f" {values['daemon private'] / 1000:.2f} MB {values['daemon descriptors']:g} fds"
        f" {values['daemon tasks']:g} tasks  chromium {sample.generation + 1}:"
        f" {values['chromium private'] / 1000:.2f} MB, with all"
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


def _counts(soak: Soak) -> Iterator[str]:
    last = soak.samples[-1]
    counted = {kind: last.jobs[kind] for kind in Kind}
    yield f"soak of {last.at / 60:.1f} minutes, seed {soak.seed}, {len(soak.samples)} samples"
    yield f"  jobs    {', '.join(f'{count} {kind}' for kind, count in counted.items())}"
    others = sorted(soak.results.other_counts.items())
    yield f"  with    {', '.join(f'{count} {what}' for what, count in others)}"
    sandbox_note = (
        "" if soak.sandboxed else ", without a sandbox, which this machine does not allow"
    )
    yield (
        f"  in      {last.generation + 1} Chromiums{sandbox_note}; "
        f"{last.values['browser restarts']:g} restarts"
    )


def _verdicts(soak: Soak) -> Iterator[str]:
    yield ""
    for finding in findings(soak.samples):
        yield f"  {finding.verdict:<18}{finding.what}: {_finding(finding)}"


def _finding(finding: Finding) -> str:
    if not finding.unit:
        return f"{_shown(finding.slope * PER)} per {PER} conversions (flat is the limit)"
    return (
        f"{_shown(finding.slope)} {finding.unit} a conversion "
        f"(at most {finding.limit:g} {finding.unit})"
    )


def _errors(soak: Soak) -> Iterator[str]:
    yield ""
    yield f"{soak.results.error_count} errors"
    yield from (f"  {error}" for error in soak.results.first_errors)


def _shown(found: Slope) -> str:
    if isinf(found.low) and isinf(found.high):
        return "-"
    return f"{_number(found.value)} ({_number(found.low)} … {_number(found.high)})"


def _number(number: float) -> str:
    if isinf(number):
        return "?"
    return f"{number:+.0f}" if abs(number) >= 100 else f"{number:+.2g}" if number else "0"
