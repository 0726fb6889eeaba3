"""How fast something grows: a slope through noisy points, robustly, with its uncertainty. Pure.

Memory is measured in steps and with jumps (a page here, an arena there, a cache that was filled),
so a line of least squares follows whatever jumped last. Theil and Sen's slope is the median of the
slopes of all pairs of points, which a few jumps do not move. Its interval is Sen's: the ranks
around the median that Kendall's variance leaves open.

Where something begins anew, as Chromium's memory does with each Chromium, there are several *runs*
of points. Only pairs within a run count, and the runs' variances add up (Hirsch and Slack's
seasonal slope): so a leak is found although each crash takes it back to nothing.

Neighbouring samples resemble each other, which makes the interval too narrow. It is widened by how
much they do: by (1 + r) / (1 - r), r being the residuals' correlation with their neighbours.
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

LEAST_POINTS: Final = 4
"""Of all runs together; with fewer there is nothing to be said."""
MOST_POINTS: Final = 400
"""Of a run: pairs are many. A longer one is thinned evenly."""
MOST_ALIKE: Final = 0.9
LIKELY: Final = 1.96
SURE: Final = 3.29
"""Of a normal distribution: 95 of 100, and 999 of 1000, are within so many deviations."""


@dataclass(frozen=True)
class Slope:
    """What `y` grows by as `x` grows by one: very likely between `low` and `high`."""

    value: float
    low: float
    high: float

    def __mul__(self, factor: float) -> Slope:
        return Slope(self.value * factor, self.low * factor, self.high * factor)


NOTHING: Final = Slope(0.0, -inf, inf)
"""Nothing is known."""


def slope(runs: Sequence[Run], *, within: float = LIKELY) -> Slope:
    """The slope that all runs have in common, and the interval of `within` deviations.

    `NOTHING` when there are too few points.
    """
    runs = [run[:: ceil(len(run) / MOST_POINTS)] for run in runs if run]
    slopes = sorted(
        (later[1] - earlier[1]) / (later[0] - earlier[0])
        for run in runs
        for earlier, later in combinations(sorted(run), 2)
        if later[0] > earlier[0]
    )
    if sum(map(len, runs)) < LEAST_POINTS or not slopes:
        return NOTHING
    value = median(slopes)
    # Kendall's variance of a count of pairs; n points have n (n - 1) / 2 of them.
    variance = sum(n * (n - 1) * (2 * n + 5) / 18 for n in map(len, runs))
    width = within * sqrt(variance * _alikeness(runs, value))
    below, above = floor((len(slopes) - width) / 2) - 1, ceil((len(slopes) + width) / 2)
    return Slope(
        value,
        slopes[below] if below >= 0 else -inf,
        slopes[above] if above < len(slopes) else inf,
    )


def _alikeness(runs: Sequence[Run], value: float) -> float:
    """How many times as wide, in its square, the resemblance of neighbours makes the interval."""
    together, apart = 0.0, 0.0
    for run in runs:
        rest = [y - value * x for x, y in run]
        middle = median(rest)
        rest = [one - middle for one in rest]
        together += sum(one * other for one, other in pairwise(rest))
        apart += sum(one * one for one in rest)
    alike = min(MOST_ALIKE, max(0.0, together / apart)) if apart else 0.0
    return (1 + alike) / (1 - alike)
