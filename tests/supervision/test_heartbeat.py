"""Heartbeats, and how late a loop is."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from smartlinkd.supervision.heartbeat import Heartbeat, WatchedLoop


def watched(heartbeat: Heartbeat, *, since: float, busy: float = 0.0) -> WatchedLoop:
    return WatchedLoop("it", heartbeat, since, busy, trio.lowlevel.current_task())


async def test_watched_loop_is_late_by_the_time_since_its_last_heartbeat_less_allowances(
    autojump_clock: MockClock,
) -> None:
    heartbeat = Heartbeat(lambda: None)
    loop = watched(heartbeat, since=0.0, busy=3.0)
    assert (loop.last_seen, loop.seconds_late(10.0)) == (0.0, 7.0)  # since its start
    await trio.sleep(4.0)
    heartbeat.touch()
    assert (loop.last_seen, loop.seconds_late(10.0)) == (4.0, 3.0)
    heartbeat.touch(allowance_s=2.0)
    assert loop.seconds_late(10.0) == 1.0
    heartbeat.touch()
    assert loop.seconds_late(10.0) == 3.0


async def test_watched_loop_of_a_new_instance_ignores_the_allowance_of_the_last_one(
    autojump_clock: MockClock,
) -> None:
    heartbeat = Heartbeat(lambda: None)
    heartbeat.touch(allowance_s=30.0)
    await trio.sleep(5.0)
    assert watched(heartbeat, since=5.0).seconds_late(10.0) == 5.0
