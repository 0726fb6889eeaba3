"""A day of measurements, one a minute."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import trio
from prometheus_client import Counter, Histogram
from trio.testing import MockClock

from smartlinkd.monitoring.series import (
    EVERY,
    HOURS,
    Recorder,
    counted,
    increase,
    mean_of,
    resident_bytes,
)

BEGIN = datetime(2026, 11, 27, tzinfo=UTC)


def wall() -> datetime:
    return BEGIN + timedelta(seconds=trio.current_time())


async def test_recorder_keeps_one_point_a_minute_for_a_day(autojump_clock: MockClock) -> None:
    values = iter(range(10_000))
    recorder = Recorder({"conversions": lambda: next(values)}, wall=wall)
    async with trio.open_nursery() as nursery:
        await nursery.start(recorder.run)
        await trio.sleep((HOURS + 1) * 3600 + 1)
        nursery.cancel_scope.cancel()
    points = recorder.points("conversions", hours=HOURS)
    assert len(points) == HOURS * 60
    assert {later.at - sooner.at for sooner, later in pairwise(points)} == {
        timedelta(seconds=EVERY)
    }
    assert [point.value for point in recorder.points("conversions", hours=2 / 60)] == [1499, 1500]
    assert recorder.points("restarts", hours=1) == []


def test_counter_and_histogram_are_measured_by_what_was_added() -> None:
    links = Counter("links", "Links", ["code"], registry=None)
    made, all_links = (increase(counted(links, **each)) for each in ({"code": "0"}, {}))
    links.labels("0").inc(3)
    links.labels("10").inc(2)
    assert (made(), all_links(), made()) == (3, 5, 0)

    seconds = Histogram("seconds", "Seconds", ["outcome"], registry=None)
    mean = mean_of(seconds)
    assert mean() is None
    seconds.labels("done").observe(2)
    seconds.labels("left").observe(4)
    assert (mean(), mean()) == (3, None)


def test_memory_is_that_of_this_process() -> None:
    assert 2**20 < resident_bytes() < 2**35
