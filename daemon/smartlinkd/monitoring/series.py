"""A day of measurements, one a minute, kept in memory for the owner's page."""

from __future__ import annotations

import resource
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Final, Literal

import trio
from prometheus_client import Counter, Histogram
from pydantic import Field

from smartlinkd.wire import Timestamp

SeriesName = Literal["conversions", "submit_seconds", "memory_bytes", "restarts"]

EVERY: Final = 60.0
"""Seconds between two measurements."""
HOURS: Final = 24
_KEPT: Final = round(HOURS * 3600 / EVERY)

Measure = Callable[[], float | None]


@dataclass(frozen=True, slots=True)
class SeriesPoint:
    """One measurement."""

    at: Timestamp
    value: Annotated[float | None, Field(description="null where there was nothing to measure")]


@dataclass
class Recorder:
    """Takes the measurements. `measures` has a function for each series."""

    measures: Mapping[SeriesName, Measure]
    wall: Callable[[], datetime] = lambda: datetime.now(UTC)
    _points: dict[SeriesName, deque[SeriesPoint]] = field(default_factory=dict)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Measure once a minute, until cancelled."""
        task_status.started()
        while True:
            now = self.wall()
            for name, measure in self.measures.items():
                points = self._points.setdefault(name, deque(maxlen=_KEPT))
                points.append(SeriesPoint(now, measure()))
            await trio.sleep(EVERY)

    def points(self, name: SeriesName, *, hours: float) -> list[SeriesPoint]:
        """Return the points of the last `hours`, oldest first."""
        begin = self.wall() - timedelta(hours=hours)
        return [point for point in self._points.get(name, ()) if point.at >= begin]


def increase(total: Callable[[], float]) -> Callable[[], float]:
    """Return a measure of what a total has grown by since the last measurement, at first from 0."""
    last = 0.0

    def measure() -> float:
        nonlocal last
        now = total()
        grown, last = now - last, now
        return grown

    return measure


def mean_of(histogram: Histogram) -> Measure:
    """Return a measure of the mean of what a histogram observed since the last measurement."""
    count, total = (increase(_sum_of(histogram, name)) for name in ("_count", "_sum"))

    def measure() -> float | None:
        observed, seconds = count(), total()
        return seconds / observed if observed else None

    return measure


def counted(counter: Counter, **labels: str) -> Callable[[], float]:
    """Return a function that gives a counter's value, over all samples that have these labels."""
    return _sum_of(counter, "_total", **labels)


def resident_bytes() -> float:
    """Return the memory of this process that is in RAM."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return float(pages * resource.getpagesize())


def _sum_of(metric: Counter | Histogram, ending: str, **labels: str) -> Callable[[], float]:
    def total() -> float:
        samples = (sample for family in metric.collect() for sample in family.samples)
        return sum(
            sample.value
            for sample in samples
            if sample.name.endswith(ending) and labels.items() <= sample.labels.items()
        )

    return total
