"""The strategy rest_for_one: no child serves without the children that started before it."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from smartlinkd.supervision.child import ChildSpec, ChildState
from smartlinkd.supervision.policy import Backoff, Intensity, Strategy
from smartlinkd.supervision.supervisor import Supervisor
from tests.supervision.conftest import Child, Grow

CHANCES = 20  # trio's scheduler decides which of two ends is read first


def rest_for_one(*specs: ChildSpec, jitter: float = 0.0, restarts: int = 100) -> Supervisor:
    return Supervisor(
        "tree",
        specs,
        strategy=Strategy.REST_FOR_ONE,
        backoff=Backoff(first=1.0, jitter=jitter),
        intensity=Intensity(restarts=restarts),
    )


@pytest.mark.parametrize("fails", [True, False])
async def test_base_and_dependant_that_end_together_come_back_in_order(
    a: Child, b: Child, grow: Grow, autojump_clock: MockClock, fails: bool
) -> None:
    for _ in range(CHANCES):
        tree = grow(rest_for_one(a.spec(), b.spec(), jitter=0.5))
        await trio.sleep(1)
        a.events.clear()
        a.fail()
        (b.fail if fails else b.finish)()
        await trio.sleep(5)
        assert a.events[2:] == ["a starts", "a serves", "b starts", "b serves"]
        assert all(child.next_retry is None for child in tree.supervisor.snapshot())
        await tree.stop()


async def test_dependant_that_ends_with_its_base_is_not_counted_as_a_restart(
    a: Child, b: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    a.tidy = b.fail
    for _ in range(CHANCES):
        tree = grow(rest_for_one(a.spec(), b.spec(), restarts=1))
        await trio.sleep(1)
        a.fail()
        await trio.sleep(5)
        assert (tree.over.is_set(), a.serving, b.serving) == (False, True, True)
        await tree.stop()


async def test_dependant_that_waits_for_its_restart_comes_back_with_its_base(
    a: Child, b: Child, c: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    grow(rest_for_one(a.spec(), b.spec(), c.spec()))
    await trio.sleep(1)
    b.fail()
    await trio.sleep(0.5)
    a.fail()
    await trio.sleep(5)
    assert a.start_times == b.start_times == c.start_times == [0.0, 2.5]


@pytest.mark.parametrize("is_first_start", [True, False])
async def test_base_that_ends_cuts_the_start_of_its_dependant_short_until_it_is_back(
    *,
    a: Child,
    b: Child,
    c: Child,
    grow: Grow,
    autojump_clock: MockClock,
    is_first_start: bool,
) -> None:
    specs = [a.spec(), b.spec(), c.spec(), Child("d", a.events).spec()]
    if is_first_start:
        b.before = trio.sleep_forever
    tree = grow(rest_for_one(*specs))
    await trio.sleep(1)
    if not is_first_start:
        b.before = trio.sleep_forever
        a.fail()
        await trio.sleep(2)  # at 2 a serves again, and b starts
    b.before = trio.lowlevel.checkpoint
    a.fail()
    await trio.sleep(0.5)
    assert [child.state for child in tree.supervisor.snapshot()] == [ChildState.WAITING] * 4
    await trio.sleep(5)
    assert tree.up
    assert [child.state for child in tree.supervisor.snapshot()] == [ChildState.RUNNING] * 4
    assert a.start_times == b.start_times == ([0.0, 2.0] if is_first_start else [0.0, 2.0, 5.0])


@pytest.mark.parametrize("is_starting", [True, False])
async def test_stop_while_a_base_is_down_starts_nothing_again(
    a: Child, b: Child, grow: Grow, autojump_clock: MockClock, is_starting: bool
) -> None:
    b.stop_takes = 3.0
    if is_starting:
        b.before = trio.sleep_forever
    tree = grow(rest_for_one(a.spec(), b.spec()))
    await trio.sleep(1)
    a.fail()
    await trio.sleep(0 if is_starting else 1)
    await tree.stop()
    assert tree.end is None
    assert tree.end_time == (1.0 if is_starting else 4.0)
    assert (a.instances, b.instances) == (1, 1)
    assert {child.state for child in tree.supervisor.snapshot()} == {ChildState.DOWN}
