"""A robust slope through noisy points, with its confidence interval. Pure.

The slope is Theil and Sen's: the median of the slopes of all pairs of points. A few jumps of the
memory do not move the median. The interval is Sen's, by Kendall's variance.

Points come in *runs*, one for each Chromium. Only pairs within a run count, and the runs' variances
add up (Hirsch and Slack's seasonal slope), so a crash does not hide a leak.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from math import ceil, floor, inf, sqrt
from statistics import median
from typing import Final

Point = tuple[float, float]
Run = Sequence[Point]

MIN_POINTS: Final = 4
"""The fewest points, of all runs together, for a slope."""
MAX_POINTS: Final = 400
"""The most points of a run: the number of pairs is its square. A longer run is thinned evenly."""
MAX_CORRELATION: Final = 0.9
Z_95: Final = 1.96
Z_999: Final = 3.29
"""Standard deviations around the mean of a normal distribution with 95 % and 99.9 % of it."""


@dataclass(frozen=True)
class Slope:
    """The growth of `y` for each one of `x`, and its confidence interval from `low` to `high`."""

    value: float
    low: float
    high: float

    def __mul__(self, factor: float) -> Slope:
        return Slope(self.value * factor, self.low * factor, self.high * factor)


UNKNOWN: Final = Slope(0.0, -inf, inf)
"""The slope when there are too few points."""


def slope(runs: Sequence[Run], *, within: float = Z_95) -> Slope:
    """Return the common slope of all runs, with an interval of `within` standard deviations.

    The slope is `UNKNOWN` when there are too few points.
    """
    runs = [run[:: ceil(len(run) / MAX_POINTS)] for run in runs if run]
    slopes = sorted(
        (later[1] - earlier[1]) / (later[0] - earlier[0])
        for run in runs
        for earlier, later in combinations(sorted(run), 2)
        if later[0] > earlier[0]
    )
    if sum(map(len, runs)) < MIN_POINTS or not slopes:
        return UNKNOWN
    value = median(slopes)
    # Kendall's variance of a count of pairs; n points have n (n - 1) / 2 of them.
    variance = sum(n * (n - 1) * (2 * n + 5) / 18 for n in map(len, runs))
    width = within * sqrt(variance * _variance_inflation(runs, value))
    below, above = floor((len(slopes) - width) / 2) - 1, ceil((len(slopes) + width) / 2)
    return Slope(
        value,
        slopes[below] if below >= 0 else -inf,
        slopes[above] if above < len(slopes) else inf,
    )


def _variance_inflation(runs: Sequence[Run], value: float) -> float:
    """Return the factor (1 + r) / (1 - r) for the variance.

    r is the correlation of neighbouring residuals. Without it the interval would be too narrow.
    """
    covariance, variance_sum = 0.0, 0.0
    for run in runs:
        residuals = [y - value * x for x, y in run]
        middle = median(residuals)
        residuals = [one - middle for one in residuals]
        covariance += sum(one * other for one, other in pairwise(residuals))
        variance_sum += sum(one * one for one in residuals)
    correlation = min(MAX_CORRELATION, max(0.0, covariance / variance_sum)) if variance_sum else 0.0
    return (1 + correlation) / (1 - correlation)
