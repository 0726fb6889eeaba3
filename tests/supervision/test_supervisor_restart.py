"""Keeping up: which ends bring a child back, after how long, and when it is once too often."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import MockClock

from smartlinkd.supervision.actor import ActorGone, Mailbox
from smartlinkd.supervision.child import ChildSpec, ChildState
from smartlinkd.supervision.policy import Backoff, Intensity, Restart, Strategy
from smartlinkd.supervision.supervisor import Escalated, Supervisor

if TYPE_CHECKING:
    from tests.supervision.conftest import Child, Grow

EVEN = Backoff(first=1.0, longest=8.0, healthy=60.0, jitter=0.0)
OFTEN = Intensity(restarts=100)

End = Callable[["Child"], None]


def fail(child: Child) -> None:
    child.fail(ValueError("broken"))


def fail_in_a_group(child: Child) -> None:
    child.fail(ExceptionGroup("several", [ValueError("broken"), KeyError("lost")]))


def finish(child: Child) -> None:
    child.finish()


async def break_down() -> None:
    raise ValueError("broken")


@pytest.mark.parametrize("strategy", list(Strategy))
@pytest.mark.parametrize(
    ("restart", "end", "comes_back"),
    [
        (Restart.PERMANENT, fail, True),
        (Restart.PERMANENT, fail_in_a_group, True),
        (Restart.PERMANENT, finish, True),
        (Restart.TRANSIENT, fail, True),
        (Restart.TRANSIENT, fail_in_a_group, True),
        (Restart.TRANSIENT, finish, False),
        (Restart.TEMPORARY, fail, False),
        (Restart.TEMPORARY, fail_in_a_group, False),
        (Restart.TEMPORARY, finish, False),
    ],
)
async def test_who_comes_back(
    *,
    a: Child,
    b: Child,
    grow: Grow,
    autojump_clock: MockClock,
    strategy: Strategy,
    restart: Restart,
    end: End,
    comes_back: bool,
) -> None:
    specs = [a.spec(), b.spec(restart=restart)]
    tree = grow(Supervisor("tree", specs, strategy=strategy, backoff=EVEN))
    await trio.sleep(10)
    end(b)
    await trio.sleep(0.9)
    assert b.instances == 1
    await trio.sleep(10)
    assert b.instances == (2 if comes_back else 1)
    assert b.serving is comes_back
    state = tree.supervisor.snapshot()[1].state
    assert state is (ChildState.RUNNING if comes_back else ChildState.DOWN)
    assert a.instances == 1


async def test_a_child_that_cancels_itself_has_returned(
    grow: Grow, autojump_clock: MockClock
) -> None:
    async def give_up_after_a_second(task_status: trio.TaskStatus[None]) -> None:
        with trio.move_on_after(1):
            task_status.started()
            await trio.sleep_forever()

    spec = ChildSpec("b", give_up_after_a_second, restart=Restart.TRANSIENT)
    tree = grow(Supervisor("tree", [spec]))
    await trio.sleep(10)
    (child,) = tree.supervisor.snapshot()
    assert child.state is ChildState.DOWN
    assert child.last_error is None


async def test_one_for_one_leaves_the_others_alone(
    a: Child, b: Child, c: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    grow(Supervisor("tree", [a.spec(), b.spec(), c.spec()], backoff=EVEN))
    await trio.sleep(10)
    fail(a)
    await trio.sleep(10)
    assert [child.instances for child in (a, b, c)] == [2, 1, 1]


async def test_waits_grow_with_each_failure_in_a_row(
    a: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    grow(Supervisor("tree", [a.spec()], backoff=EVEN, intensity=OFTEN))
    await trio.sleep(0.5)
    for wait in (1.0, 2.0, 4.0, 8.0, 8.0):
        fail(a)
        failed_at = trio.current_time()
        await trio.sleep(wait + 0.5)
        assert a.start_times[-1] - failed_at == pytest.approx(wait)


async def test_waits_grow_with_each_start_that_fails_too(
    a: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    grow(Supervisor("tree", [a.spec()], backoff=EVEN, intensity=OFTEN))
    await trio.sleep(1000)  # healthy, which counts for the failure that comes next and no other
    a.before = break_down
    fail(a)
    await trio.sleep(20)
    assert a.start_times[1:] == pytest.approx([1001.0, 1003.0, 1007.0, 1015.0])


async def test_a_start_over_its_time_is_tried_again(
    a: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    specs = [a.spec(start_timeout=5.0)]
    tree = grow(Supervisor("tree", specs, backoff=EVEN, intensity=OFTEN))
    await trio.sleep(10)
    a.before = trio.sleep_forever
    fail(a)
    await trio.sleep(12)
    assert a.start_times[1:] == pytest.approx([11.0, 18.0])  # 1 s, 5 s of starting, 2 s
    last_error = tree.supervisor.snapshot()[0].last_error
    assert last_error == "TooSlowError: did not serve within 5 s"


async def test_the_jitter_comes_from_the_dice_it_was_given(
    a: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    backoff = Backoff(first=1.0, jitter=0.2)
    dice, same_dice = random.Random(5), random.Random(5)
    grow(Supervisor("tree", [a.spec()], backoff=backoff, chance=dice))
    await trio.sleep(1)
    for failures in (1, 2, 3):
        fail(a)
        failed_at = trio.current_time()
        await trio.sleep(5)
        wait = backoff.wait(failures, same_dice)
        assert a.start_times[-1] - failed_at == pytest.approx(wait)


@pytest.mark.parametrize(("uptime", "wait"), [(60.0, 1.0), (59.9, 4.0)])
async def test_a_child_that_was_healthy_starts_over_with_the_first_wait(
    a: Child, grow: Grow, autojump_clock: MockClock, uptime: float, wait: float
) -> None:
    grow(Supervisor("tree", [a.spec()], backoff=EVEN, intensity=OFTEN))
    await trio.sleep(1)
    fail(a)
    await trio.sleep(2)
    fail(a)
    await trio.sleep(2)  # serves from now on
    await trio.sleep(uptime)
    fail(a)
    failed_at = trio.current_time()
    await trio.sleep(10)
    assert a.start_times[-1] - failed_at == pytest.approx(wait)


async def test_the_time_it_takes_to_start_is_not_healthy_time(
    a: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    async def take_long() -> None:
        await trio.sleep(50)

    specs = [a.spec(start_timeout=100.0)]
    grow(Supervisor("tree", specs, backoff=EVEN, intensity=OFTEN))
    await trio.sleep(1)
    a.before = take_long
    fail(a)
    await trio.sleep(1 + 50 + 15)
    fail(a)
    failed_at = trio.current_time()
    await trio.sleep(10)
    assert a.start_times[-1] - failed_at == pytest.approx(2.0)


async def test_healthy_time_ends_with_the_failure_and_not_when_it_is_read(
    a: Child, b: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    async def take_long() -> None:
        await trio.sleep(50)

    specs = [a.spec(start_timeout=100.0), b.spec()]
    grow(Supervisor("tree", specs, backoff=EVEN, intensity=OFTEN))
    await trio.sleep(1)
    fail(b)
    await trio.sleep(20)  # b serves since 2.0
    a.before = take_long
    fail(a)
    await trio.sleep(10)  # a starts from 22.0 to 72.0, and nobody looks at b
    fail(b)
    await trio.sleep(100)
    assert b.start_times[-1] == pytest.approx(74.0)


async def test_restarts_up_to_the_limit_are_all_right(
    a: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    intensity = Intensity(restarts=3, period=60.0)
    backoff = Backoff(first=1.0, longest=1.0, jitter=0.0)
    tree = grow(Supervisor("tree", [a.spec()], backoff=backoff, intensity=intensity))
    await trio.sleep(1)
    for _ in range(3):
        fail(a)
        await trio.sleep(2)
    await trio.sleep(100)
    assert not tree.over.is_set()
    assert a.instances == 4


async def test_one_restart_more_and_everything_stops_in_order(
    a: Child, b: Child, c: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    intensity = Intensity(restarts=3, period=60.0)
    specs = [a.spec(), b.spec(), c.spec()]
    tree = grow(Supervisor("tree", specs, backoff=EVEN, intensity=intensity))
    await trio.sleep(1)
    for wait in (1.0, 2.0, 4.0):
        fail(b)
        await trio.sleep(wait + 0.5)
    a.events.clear()
    fail(b)
    await tree.over.wait()
    assert isinstance(tree.end, Escalated)
    assert str(tree.end) == (
        "b needed more than 3 restarts in 60 s; its last error: ValueError: broken"
    )
    assert a.events == ["b ends", "c is asked", "c ends", "a is asked", "a ends"]


async def test_the_limit_counts_over_all_children(
    a: Child, b: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    intensity = Intensity(restarts=1, period=60.0)
    tree = grow(Supervisor("tree", [a.spec(), b.spec()], backoff=EVEN, intensity=intensity))
    await trio.sleep(1)
    fail(a)
    await trio.sleep(5)
    fail(b)
    await tree.over.wait()
    assert isinstance(tree.end, Escalated)


async def test_starts_that_fail_count_against_the_limit(
    a: Child, b: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    intensity = Intensity(restarts=2, period=60.0)
    tree = grow(Supervisor("tree", [a.spec(), b.spec()], backoff=EVEN, intensity=intensity))
    await trio.sleep(1)
    b.before = break_down
    fail(b)
    await tree.over.wait()
    assert isinstance(tree.end, Escalated)
    assert b.instances == 3
    assert a.events[-2:] == ["a is asked", "a ends"]


async def test_ends_that_bring_nobody_back_do_not_count(
    a: Child, b: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    specs = [a.spec(restart=Restart.TEMPORARY), b.spec(restart=Restart.TRANSIENT)]
    tree = grow(Supervisor("tree", specs, intensity=Intensity(restarts=0)))
    await trio.sleep(1)
    fail(a)
    finish(b)
    await trio.sleep(1)
    assert not tree.over.is_set()


async def test_several_that_fail_together_all_come_back(
    a: Child, b: Child, c: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    specs = [a.spec(), b.spec(), c.spec()]
    grow(Supervisor("tree", specs, backoff=EVEN))
    await trio.sleep(1)
    for child in (c, a, b):
        fail(child)
    await trio.sleep(5)
    assert all(child.serving and child.instances == 2 for child in (a, b, c))


@pytest.mark.parametrize(
    ("restart", "end", "why"),
    [
        (Restart.TRANSIENT, finish, "it has done its work"),
        (Restart.TEMPORARY, finish, "it has done its work"),
        (Restart.TEMPORARY, fail, "it failed"),
    ],
)
async def test_the_mailbox_of_one_that_never_comes_back_is_closed(
    *, a: Child, grow: Grow, autojump_clock: MockClock, restart: Restart, end: End, why: str
) -> None:
    mailbox = Mailbox[None]("a", size=8)
    grow(Supervisor("tree", [a.spec(restart=restart, mailbox=mailbox)]))
    await trio.sleep(1)
    end(a)
    with pytest.raises(ActorGone, match=f"has ended: {why}"):
        await mailbox.ask(do_nothing)  # waits for a child that takes none, until it has ended


async def test_the_mailbox_of_one_that_comes_back_keeps_what_waits(
    grow: Grow, autojump_clock: MockClock
) -> None:
    instances = 0

    async def break_once(task_status: trio.TaskStatus[None]) -> None:
        nonlocal instances
        instances += 1
        task_status.started()
        if instances == 1:
            await trio.sleep(1)
            raise ValueError("broken")
        await mailbox.serve(None)

    mailbox = Mailbox[None]("a", size=8)
    grow(Supervisor("tree", [ChildSpec("a", break_once, mailbox=mailbox)], backoff=EVEN))
    await mailbox.ask(do_nothing)
    assert trio.current_time() == pytest.approx(2.0)


async def do_nothing(state: None) -> None:
    pass


@pytest.mark.parametrize("beside", [(), (ValueError("broken"),)])
async def test_an_interrupt_from_the_keyboard_ends_it_all(
    *, a: Child, b: Child, grow: Grow, autojump_clock: MockClock, beside: tuple[Exception, ...]
) -> None:
    tree = grow(Supervisor("tree", [a.spec(), b.spec()], backoff=EVEN))
    await trio.sleep(1)
    interrupt = KeyboardInterrupt()
    b.fail(BaseExceptionGroup("both", [interrupt, *beside]) if beside else interrupt)
    await tree.over.wait()
    if isinstance(tree.end, BaseExceptionGroup):
        assert tree.end.subgroup(KeyboardInterrupt) is not None
    else:
        assert tree.end is interrupt
    assert (a.alive, b.alive, b.instances) == (0, 0, 1)
