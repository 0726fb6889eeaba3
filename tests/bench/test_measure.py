"""Measurements: whose turn it is, what a ratio is and how far it spreads, what meets a goal."""

from __future__ import annotations

from itertools import count

import pytest

from bench.measure import Comparison, Goal, Row, Series, interleave, turns


def compared(ours: list[float], theirs: list[float], goal: Goal | None = None) -> Comparison:
    sides = Series("ours", "s", ours), Series("theirs", "s", theirs)
    return Comparison("a thing", *sides, goal=goal or Goal())


def test_who_begins_alternates() -> None:
    assert list(turns(["a", "b"], 3)) == [
        (1, "a"), (1, "b"), (2, "b"), (2, "a"), (3, "a"), (3, "b"),
    ]  # fmt: skip


def test_each_side_has_a_value_for_each_round() -> None:
    clock = count(1.0)
    found = interleave({"a": lambda: next(clock), "b": lambda: -next(clock)}, 2)
    assert found == {"a": [1.0, 4.0], "b": [-2.0, -3.0]}


def test_a_ratio_is_of_the_medians() -> None:
    assert compared([1, 2, 300], [4, 4, 4]).ratio.middle == 0.5


def test_a_neighbour_that_slows_down_both_sides_of_a_round_does_not_widen_the_spread() -> None:
    ratio = compared([1, 10, 1, 10, 1], [2, 20, 2, 20, 2]).ratio
    assert (ratio.low, ratio.middle, ratio.high) == (0.5, 0.5, 0.5)


def test_the_spread_always_holds_the_ratio() -> None:
    ratio = compared([1, 2, 9], [9, 2, 1]).ratio
    assert ratio.low <= ratio.middle <= ratio.high


def test_nothing_beside_nothing_is_the_same() -> None:
    assert compared([0.0], [0.0]).ratio.middle == 1.0


@pytest.mark.parametrize(
    ("goal", "met"),
    [
        (Goal(), True),
        (Goal(at_most=0.5), True),
        (Goal(at_most=0.49), False),
        (Goal(at_least=0.5), True),
        (Goal(at_least=0.51), False),
    ],
)
def test_a_missed_goal_is_told(goal: Goal, met: bool) -> None:
    one = compared([1.0], [2.0], goal)
    row = Row(1, "a row", [compared([1.0], [1.0]), one])
    assert (one.met, row.met, row.told()["comparisons"][1]["met"]) == (met, met, met)


@pytest.mark.parametrize(
    ("floor", "goal", "ratio", "within_reach"),
    [
        (None, Goal(at_most=0.1), None, True),
        ([1.0, 1.0], Goal(at_most=0.6), 0.5, True),
        ([1.0, 1.0], Goal(at_most=0.4), 0.5, False),
        ([1.0], Goal(), 0.5, True),
    ],
)
def test_a_goal_below_the_floor_is_out_of_reach(
    floor: list[float] | None, goal: Goal, ratio: float | None, within_reach: bool
) -> None:
    ours, theirs = Series("", "s", [3.0]), Series("", "s", [2.0])
    least = None if floor is None else Series("", "s", floor)
    one = Comparison("a thing", ours, theirs, goal=goal, floor=least)
    assert (one.least, one.within_reach) == (ratio, within_reach)


def test_of_a_rate_there_is_no_floor() -> None:
    rate = Series("", "/s", [1.0])
    with pytest.raises(ValueError, match="a thing"):
        Comparison("a thing", rate, rate, "more", floor=rate)


def test_sides_with_different_rounds_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="a thing"):
        compared([1.0], [1.0, 2.0])
