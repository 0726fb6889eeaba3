"""The slope: exact where it can be known, not fooled by noise, jumps and new beginnings."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from math import inf

import pytest

from tests.soak.fit import LEAST_POINTS, NOTHING, Point, slope


@pytest.fixture
def chance() -> random.Random:
    """The same noise every time, whichever tests ran before."""
    return random.Random(7)


def line(
    start: float, per_x: float, noise: Callable[[], float] = float, points: int = 60
) -> list[Point]:
    return [(40.0 * n, start + per_x * 40.0 * n + noise()) for n in range(points)]


def test_a_line_has_its_own_slope() -> None:
    found = slope([line(100, 2.5)])
    assert (found.value, found.low, found.high) == pytest.approx((2.5, 2.5, 2.5))


def test_a_flat_line_has_none() -> None:
    found = slope([line(100, 0)])
    assert (found.value, found.low, found.high) == (0, 0, 0)


def test_the_interval_holds_the_slope_behind_the_noise(chance: random.Random) -> None:
    found = slope([line(5000, 0.7, partial(chance.gauss, 0, 200))])
    assert found.low < 0.7 < found.high
    assert found.high - found.low < 0.4


def test_in_most_tries_it_does(chance: random.Random) -> None:
    tries = [slope([line(0, 1, partial(chance.gauss, 0, 50), points=30)]) for _ in range(200)]
    assert sum(found.low <= 1 <= found.high for found in tries) >= 180


def test_a_few_jumps_do_not_count(chance: random.Random) -> None:
    points = line(100, 0, partial(chance.gauss, 0, 1))
    for place in (11, 12, 37):
        points[place] = (points[place][0], 90_000)
    assert abs(slope([points]).value) < 0.01


def test_what_begins_anew_still_grows(chance: random.Random) -> None:
    """Each run starts at the bottom again: through all points together there is no slope."""
    runs = [
        [(x + 1000 * n, y) for x, y in line(100, 2, partial(chance.gauss, 0, 5), points=20)]
        for n in range(4)
    ]
    assert slope([[point for run in runs for point in run]]).value < 0.5
    found = slope(runs)
    assert found.value == pytest.approx(2, rel=0.05)
    assert found.low > 1.9


def test_neighbours_that_resemble_each_other_tell_less(chance: random.Random) -> None:
    wandering, height = [], 0.0
    for n in range(100):
        height += chance.gauss(0, 10)
        wandering.append((float(n), height))
    shuffled = [height for _, height in wandering]
    chance.shuffle(shuffled)
    one, other = slope([wandering]), slope([list(enumerate(shuffled))])
    assert one.high - one.low > 1.5 * (other.high - other.low)


@pytest.mark.parametrize("points", range(LEAST_POINTS))
def test_with_too_few_points_nothing_is_known(points: int) -> None:
    assert slope([line(0, 1, points=points)]) == NOTHING


def test_points_above_each_other_have_no_slope() -> None:
    assert slope([[(1.0, float(n)) for n in range(20)]]) == NOTHING


def test_with_few_points_the_interval_is_open() -> None:
    found = slope([line(0, 1, points=LEAST_POINTS)])
    assert (found.low, found.high) == (-inf, inf)
    assert found.value == pytest.approx(1)


def test_a_long_run_is_thinned() -> None:
    """Its millions of pairs would take minutes."""
    assert slope([line(0, 3, points=20_000)]).value == pytest.approx(3)
