"""The report: what it tells of missed goals and failed rows, and what stands in its files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import report
from bench.measure import Comparison, Goal, Row, Series

MET = Row(1, "one", [Comparison("fast", Series("ours", "s", [0.25]), Series("a peer", "s", [1.0]))])
MISSED = Row(
    2,
    "two",
    [
        Comparison(
            "slow",
            Series("ours", "s", [3.0, 3.0]),
            Series("a peer", "s", [1.0, 2.0]),
            goal=Goal(at_most=1.5),
        )
    ],
    ["with a grain of salt"],
)
VERSIONS = {"python": "3.11", "odd <one>": "1"}


def test_a_missed_goal_is_named_with_its_ratio() -> None:
    found = report.results([MET, MISSED], {}, VERSIONS, quick=False, complete=True)
    assert report.summary(found) == (
        "0 of 1 goals met\n"
        "  missed: slow: 2 times a peer (1.88 … 2.62, 2 rounds), goal: at most 1.5"
    )
    assert not report.all_met(found)


@pytest.mark.parametrize(("least", "word"), [(1.4, "missed"), (1.6, "out of reach")])
def test_a_missed_goal_is_told_from_one_that_is_below_the_floor(least: float, word: str) -> None:
    ours, theirs, floor = (
        Series(name, "s", [value])
        for name, value in (("ours", 2.0), ("a peer", 1.0), ("least", least))
    )
    goal = Goal(at_most=1.5)
    row = Row(3, "three", [Comparison("slow", ours, theirs, goal=goal, floor=floor)])
    found = report.results([row], {}, VERSIONS, quick=False, complete=True)
    assert report.summary(found) == (
        f"0 of 1 goals met\n  {word}: slow: 2 times a peer (2 … 2, 1 rounds), goal: at most 1.5, "
        f"floor: {least:g}"
    )
    assert not report.all_met(found)


def test_what_is_below_its_floor_is_told_though_its_goal_is_met() -> None:
    ours, theirs, floor = (
        Series(name, "s", [value])
        for name, value in (("ours", 1.0), ("a peer", 2.0), ("least", 1.1))
    )
    row = Row(3, "three", [Comparison("fast", ours, theirs, goal=Goal(at_most=1), floor=floor)])
    found = report.results([row], {}, VERSIONS, quick=False, complete=True)
    assert report.summary(found) == (
        "1 of 1 goals met\n"
        "  faster than its floor, which is none then: "
        "fast: 0.5 times a peer (0.5 … 0.5, 1 rounds), goal: at most 1, floor: 0.55"
    )


def test_a_row_that_failed_is_no_success() -> None:
    found = report.results([MET], {2: "Traceback"}, VERSIONS, quick=False, complete=True)
    assert "row 2 could not be measured" in report.summary(found)
    assert not report.all_met(found)
    assert report.all_met(report.results([MET], {}, VERSIONS, quick=False, complete=True))


def test_no_bare_time_is_printed() -> None:
    printed = report.text([MISSED])
    assert "3 s" not in printed
    assert "with a grain of salt" in printed


def test_the_files_hold_the_figures(tmp_path: Path) -> None:
    found = report.results([], {3: "<Traceback>"}, VERSIONS, quick=True, complete=False)
    told = report.draw(found, tmp_path).read_text(encoding="utf-8")
    assert "&lt;Traceback&gt;" in told
    assert "odd &lt;one&gt; 1" in told
    report.save(found, tmp_path)
    kept = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert (kept["quick"], kept["complete"], kept["versions"]) == (True, False, VERSIONS)


def test_the_figures_before_are_never_written_over(tmp_path: Path) -> None:
    before = report.results([MET], {}, VERSIONS, quick=False, complete=False)
    report.save(before, tmp_path)
    with (tmp_path / "results.json").open(encoding="utf-8") as opened:
        report.save({**before, "rows": []}, tmp_path)
        assert json.load(opened) == before
