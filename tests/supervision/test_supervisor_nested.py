"""A supervisor as a child of another: it stops in order, gives up alone, and starts over."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import MockClock

from smartlinkd.supervision.actor import ActorGone, ActorRestarting, Mailbox
from smartlinkd.supervision.child import ChildSpec, ChildState
from smartlinkd.supervision.policy import Backoff, Intensity, Strategy
from smartlinkd.supervision.supervisor import Escalated, Supervisor

if TYPE_CHECKING:
    from tests.supervision.conftest import Child, Grow

EVEN = Backoff(first=1.0, jitter=0.0)


def as_child(supervisor: Supervisor) -> ChildSpec:
    return ChildSpec(supervisor.name, supervisor.run, stop=supervisor.stop, grace=60.0)


async def test_the_whole_tree_starts_in_order_and_stops_in_reverse(
    a: Child, b: Child, c: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    inner = Supervisor("inner", [b.spec(), c.spec()])
    tree = grow(Supervisor("outer", [a.spec(), as_child(inner)]))
    await trio.sleep(1)
    assert a.events == ["a starts", "a serves", "b starts", "b serves", "c starts", "c serves"]
    a.events.clear()
    tree.supervisor.stop()
    await tree.over.wait()
    assert a.events == ["c is asked", "c ends", "b is asked", "b ends", "a is asked", "a ends"]


async def test_what_one_gives_up_on_the_next_one_starts_again(
    a: Child, b: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    inner = Supervisor("inner", [b.spec()], backoff=EVEN, intensity=Intensity(restarts=1))
    tree = grow(Supervisor("outer", [a.spec(), as_child(inner)], backoff=EVEN))
    await trio.sleep(1)
    b.fail(ValueError("broken"))
    await trio.sleep(2)
    b.fail(ValueError("broken"))
    await trio.sleep(2)
    outer_snapshot = tree.supervisor.snapshot()[1]
    assert (outer_snapshot.state, outer_snapshot.restarts) == (ChildState.RUNNING, 1)
    assert outer_snapshot.last_error is not None
    assert outer_snapshot.last_error.startswith("Escalated: b needed more than 1 restarts")
    assert b.serving
    b.fail(ValueError("broken"))  # the count of the inner one goes on
    await trio.sleep(3)
    assert b.serving
    assert tree.supervisor.snapshot()[1].restarts == 2
    assert a.instances == 1


@pytest.mark.parametrize("lives_for", [0.1, 5.0, 8.0])
async def test_one_below_that_always_fails_ends_the_uppermost_one(
    a: Child, grow: Grow, autojump_clock: MockClock, lives_for: float
) -> None:
    starts = 0

    async def fail_again_and_again(task_status: trio.TaskStatus[None]) -> None:
        nonlocal starts
        starts += 1
        task_status.started()
        await trio.sleep(lives_for)
        raise ValueError("broken")

    inner = Supervisor("inner", [ChildSpec("b", fail_again_and_again)])
    tree = grow(Supervisor("outer", [a.spec(), as_child(inner)]))
    with trio.fail_after(2 * 60.0):
        await tree.over.wait()
    assert isinstance(tree.end, Escalated)
    assert str(tree.end) == (
        "inner needed more than 5 restarts in 60 s; its last error: Escalated: "
        "b needed more than 5 restarts in 60 s; its last error: ValueError: broken"
    )
    assert (a.instances, starts) == (1, 11)


async def test_backoff_starts_over_with_the_supervisor(
    a: Child, b: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    few = Intensity(restarts=2, period=20.0)
    inner = Supervisor("inner", [b.spec()], backoff=EVEN, intensity=few)
    grow(Supervisor("outer", [as_child(inner)], backoff=EVEN))
    await trio.sleep(1)
    for _ in range(3):
        b.fail(ValueError("broken"))
        await trio.sleep(5)
    await trio.sleep(few.period)  # its count is over; this is not long enough to be healthy
    b.fail(ValueError("broken"))
    failed_at = trio.current_time()
    await trio.sleep(5)
    assert b.start_times[-1] - failed_at == pytest.approx(1.0)


async def test_mailboxes_work_again_after_the_supervisor_was_restarted(
    grow: Grow, autojump_clock: MockClock
) -> None:
    async def serve(task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        await mailbox.serve(None)

    mailbox = Mailbox[None]("b", size=8)
    inner = Supervisor(
        "inner",
        [ChildSpec("b", serve, mailbox=mailbox)],
        intensity=Intensity(restarts=0),
    )
    grow(Supervisor("outer", [as_child(inner)], backoff=EVEN))
    await trio.sleep(1)
    with pytest.raises(ActorRestarting):
        await mailbox.ask(break_down)
    await trio.sleep(0.5)
    with pytest.raises(ActorGone):
        await mailbox.ask(do_nothing)
    await trio.sleep(1)
    await mailbox.ask(do_nothing)


async def break_down(state: None) -> None:
    raise ValueError("broken")


async def do_nothing(state: None) -> None:
    pass


async def test_one_that_was_stopped_with_its_base_starts_again_with_it(
    a: Child, b: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    inner = Supervisor("inner", [b.spec()])
    outer = Supervisor(
        "outer", [a.spec(), as_child(inner)], strategy=Strategy.REST_FOR_ONE, backoff=EVEN
    )
    tree = grow(outer)
    await trio.sleep(1)
    a.fail(ValueError("broken"))
    await trio.sleep(0.5)
    assert b.events[-2:] == ["b is asked", "b ends"]
    await trio.sleep(5)
    assert (b.instances, b.serving) == (2, True)
    assert [child.restarts for child in tree.supervisor.snapshot()] == [1, 1]


async def test_one_that_does_not_come_up_ends_the_outer_one(
    a: Child, b: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    async def break_down_at_once() -> None:
        raise ValueError("broken")

    b.before = break_down_at_once
    inner = Supervisor("inner", [b.spec()])
    tree = grow(Supervisor("outer", [a.spec(), as_child(inner)]))
    await tree.over.wait()
    assert isinstance(tree.end, Escalated)
    assert str(tree.end) == ("inner did not start: Escalated: b did not start: ValueError: broken")
    assert a.events[-2:] == ["a is asked", "a ends"]
