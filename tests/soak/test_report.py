"""The report: what it tells, which exit code, and what it writes."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from tests.soak import report
from tests.soak.made_up import made_up
from tests.soak.running import Soak
from tests.soak.samples import Sample
from tests.soak.world import Book


def soak(samples: list[Sample], *wrong: str) -> Soak:
    return Soak(30, 1, samples=samples, book=Book(wrong=list(wrong), wrongs=len(wrong)))


FLAT = made_up()
LEAKING = made_up(shapes={"daemon private": lambda done, _: 2.0 * done})


@pytest.mark.parametrize(
    ("made", "code"),
    [
        (soak(FLAT), report.HELD),
        (soak(LEAKING), report.FAILED),
        (soak(FLAT, "an answer was another one's"), report.FAILED),
        (soak(FLAT[:12]), report.UNDECIDED),
        (soak(FLAT[:12], "an answer was another one's"), report.FAILED),
    ],
)
def test_the_exit_code(made: Soak, code: int) -> None:
    assert report.exit_code(made) == code


def test_the_text_names_what_is_broken_and_what_was_wrong() -> None:
    told = report.text(soak(LEAKING, "an answer was another one's"))
    (line,) = (line for line in told.splitlines() if "BROKEN" in line)
    assert "the daemon's memory: +2" in line
    assert "1 answers were not what they should be\n  an answer was another one's" in told


def test_the_files_hold_every_sample(tmp_path: Path) -> None:
    for sample in FLAT:
        report.append(sample, tmp_path / "samples.csv")
    report.write(soak(FLAT), tmp_path)
    with (tmp_path / "samples.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["daemon private"]) for row in rows] == [
        sample.values["daemon private"] for sample in FLAT
    ]
    told = json.loads((tmp_path / "soak.json").read_text(encoding="utf-8"))
    assert [Sample(**sample) for sample in told["samples"]] == FLAT
    assert (tmp_path / "report.txt").read_text(encoding="utf-8").startswith("soak of")
