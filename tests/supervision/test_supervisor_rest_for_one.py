"""rest_for_one: nobody serves on a base that has ended, and all come back in order."""

from __future__ import annotations

from dataclasses import replace
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


def rest_for_one(
    *specs: ChildSpec, backoff: Backoff = EVEN, intensity: Intensity = OFTEN
) -> Supervisor:
    return Supervisor(
        "tree", specs, strategy=Strategy.REST_FOR_ONE, backoff=backoff, intensity=intensity
    )


async def test_dependants_stop_in_reverse_and_start_again_in_order(
    a: Child, b: Child, c: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    grow(rest_for_one(a.spec(), b.spec(), c.spec()))
    await trio.sleep(1)
    a.events.clear()
    a.fail(ValueError("broken"))
    await trio.sleep(0.5)
    assert a.events == ["a ends", "c is asked", "c ends", "b is asked", "b ends"]
    a.events.clear()
    await trio.sleep(1)
    assert a.events == [
        *("a starts", "a serves"),
        *("b starts", "b serves"),
        *("c starts", "c serves"),
    ]


async def test_those_started_before_are_left_alone(
    a: Child, b: Child, c: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    grow(rest_for_one(a.spec(), b.spec(), c.spec()))
    await trio.sleep(1)
    b.fail(ValueError("broken"))
    await trio.sleep(5)
    assert [child.instances for child in (a, b, c)] == [1, 2, 2]


async def test_the_wait_counts_from_the_end_of_the_stops(
    a: Child, b: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    b.stop_takes = 3.0
    grow(rest_for_one(a.spec(), b.spec()))
    await trio.sleep(1)
    a.fail(ValueError("broken"))
    await trio.sleep(10)
    assert a.start_times == pytest.approx([0.0, 5.0])


async def test_a_start_that_fails_puts_off_its_dependants(
    a: Child, b: Child, c: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    async def break_down() -> None:
        raise ValueError("broken")

    grow(rest_for_one(a.spec(), b.spec(), c.spec()))
    await trio.sleep(1)
    b.before = break_down
    a.fail(ValueError("broken"))
    await trio.sleep(2)  # at 2.0 a is up again and b is not
    assert (a.serving, c.instances) == (True, 1)
    b.before = trio.lowlevel.checkpoint
    await trio.sleep(5)
    assert [child.instances for child in (a, b, c)] == [2, 3, 2]
    assert c.start_times[-1] == pytest.approx(3.0)


@pytest.mark.parametrize("end", ["fail", "finish"])
@pytest.mark.parametrize("first", ["base", "dependant"])
async def test_base_and_dependant_that_end_together_come_back_in_order(
    *, a: Child, b: Child, grow: Grow, autojump_clock: MockClock, end: str, first: str
) -> None:
    tree = grow(rest_for_one(a.spec(), b.spec()))
    await trio.sleep(1)
    a.events.clear()
    if first == "base":
        a.fail(ValueError("broken"))
    if end == "fail":
        b.fail(ValueError("broken too"))
    else:
        b.finish()
    if first == "dependant":
        a.fail(ValueError("broken"))
    await trio.sleep(20)
    assert a.events[2:] == ["a starts", "a serves", "b starts", "b serves"]
    assert all(child.next_retry is None for child in tree.supervisor.snapshot())


async def test_a_dependant_that_is_done_as_its_base_fails_is_done_or_works_again(
    a: Child, b: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    for _ in range(20):  # which end is read first is up to the scheduler's dice
        tree = grow(rest_for_one(a.spec(), b.spec(restart=Restart.TRANSIENT)))
        await trio.sleep(1)
        a.fail(ValueError("broken"))
        b.finish()
        await trio.sleep(20)
        (_, dependant) = tree.supervisor.snapshot()
        assert dependant.state is (ChildState.RUNNING if b.serving else ChildState.DOWN)
        assert dependant.next_retry is None
        tree.supervisor.stop()
        await tree.over.wait()


async def test_a_dependant_never_comes_back_before_its_base(
    a: Child, b: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    backoff = Backoff(first=1.0, jitter=0.5)
    for _ in range(20):  # the dice decide in which order two ends are read, and the waits
        tree = grow(rest_for_one(a.spec(), b.spec(), backoff=backoff))
        await trio.sleep(1)
        a.events.clear()
        a.fail(ValueError("broken"))
        b.fail(ValueError("broken too"))
        await trio.sleep(5)
        assert a.events[2:] == ["a starts", "a serves", "b starts", "b serves"]
        tree.supervisor.stop()
        await tree.over.wait()


async def test_a_dependant_that_ends_for_want_of_its_base_does_not_count(
    a: Child, b: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    def end_too() -> None:
        b.fail(ValueError("no base"))

    a.tidy = end_too
    for _ in range(20):  # the supervisor hears of the base alone, or of both; the dice decide
        tree = grow(rest_for_one(a.spec(), b.spec(), intensity=Intensity(restarts=1)))
        await trio.sleep(1)
        a.fail(ValueError("broken"))
        await trio.sleep(5)
        assert not tree.over.is_set()
        assert a.serving
        assert b.serving
        tree.supervisor.stop()
        await tree.over.wait()


async def test_nobody_starts_again_on_a_base_that_ended_meanwhile(
    a: Child, b: Child, c: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    async def lose_the_base() -> None:
        if b.instances == 2:
            a.fail(ValueError("broken again"))
            await trio.sleep(5)

    b.before = lose_the_base
    grow(rest_for_one(a.spec(), b.spec(), c.spec()))
    await trio.sleep(1)
    a.fail(ValueError("broken"))
    await trio.sleep(20)
    assert [child.instances for child in (a, b, c)] == [3, 3, 2]
    assert all(child.serving for child in (a, b, c))


async def test_a_temporary_dependant_stops_and_does_not_come_back(
    a: Child, b: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    mailbox = Mailbox[None]("b", size=8)
    grow(rest_for_one(a.spec(), b.spec(restart=Restart.TEMPORARY, mailbox=mailbox)))
    await trio.sleep(1)
    a.fail(ValueError("broken"))
    await trio.sleep(5)
    assert (a.instances, b.instances, b.alive) == (2, 1, 0)
    with pytest.raises(ActorGone, match="it depended on a, which ended"):
        await mailbox.ask(do_nothing)


async def test_the_mailbox_of_a_dependant_that_comes_back_stays_open(
    a: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    async def serve(task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        await mailbox.serve(None)

    mailbox = Mailbox[None]("b", size=8)
    grow(rest_for_one(a.spec(), ChildSpec("b", serve, mailbox=mailbox)))
    await trio.sleep(1)
    a.fail(ValueError("broken"))
    await trio.sleep(0.5)
    await mailbox.ask(do_nothing)
    assert trio.current_time() == pytest.approx(2.0)


async def do_nothing(state: None) -> None:
    pass


async def test_a_dependant_that_is_done_stays_done(
    a: Child, b: Child, c: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    grow(rest_for_one(a.spec(), b.spec(restart=Restart.TRANSIENT), c.spec()))
    await trio.sleep(1)
    b.finish()
    await trio.sleep(1)
    a.fail(ValueError("broken"))
    await trio.sleep(5)
    assert [child.instances for child in (a, b, c)] == [2, 1, 2]


async def test_a_dependant_that_waits_for_its_restart_comes_back_with_its_base(
    a: Child, b: Child, c: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    grow(rest_for_one(a.spec(), b.spec(), c.spec()))
    await trio.sleep(1)
    b.fail(ValueError("broken"))
    await trio.sleep(0.5)
    a.fail(ValueError("broken"))
    await trio.sleep(5)
    assert a.start_times[-1] == b.start_times[-1] == c.start_times[-1] == pytest.approx(2.5)
    assert [child.instances for child in (a, b, c)] == [2, 2, 2]


async def test_one_restart_too_many_stops_the_dependants_in_order_too(
    a: Child, b: Child, c: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    tree = grow(rest_for_one(a.spec(), b.spec(), c.spec(), intensity=Intensity(restarts=0)))
    await trio.sleep(1)
    a.events.clear()
    b.fail(ValueError("broken"))
    await tree.over.wait()
    assert isinstance(tree.end, Escalated)
    assert a.events == ["b ends", "c is asked", "c ends", "a is asked", "a ends"]


async def test_stopped_while_dependants_stop_it_starts_nothing_again(
    a: Child, b: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    b.stop_takes = 3.0
    tree = grow(rest_for_one(a.spec(), b.spec()))
    await trio.sleep(1)
    a.fail(ValueError("broken"))
    await trio.sleep(1)
    tree.supervisor.stop()
    await tree.over.wait()
    assert tree.end is None
    assert tree.end_time == pytest.approx(4.0)
    assert (a.instances, b.instances) == (1, 1)
    assert b.events.count("b is asked") == 1


async def test_a_start_ends_with_the_base_that_it_may_be_waiting_for(
    a: Child, b: Child, c: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    tree = grow(rest_for_one(a.spec(), b.spec(), c.spec()))
    await trio.sleep(1)
    b.before = trio.sleep_forever
    a.fail(ValueError("broken"))
    await trio.sleep(1.5)  # a serves again, and b is being started
    b.before = trio.lowlevel.checkpoint
    a.fail(ValueError("broken again"))
    await trio.sleep(5)
    assert a.start_times == b.start_times == pytest.approx([0.0, 2.0, 4.5])
    assert c.start_times == pytest.approx([0.0, 4.5])
    assert [child.last_error for child in tree.supervisor.snapshot()] == [
        "ValueError: broken again",
        None,
        None,
    ]


async def test_the_first_start_too_goes_on_when_its_base_is_there_again(
    a: Child, b: Child, c: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    b.before = trio.sleep_forever
    tree = grow(rest_for_one(a.spec(), b.spec(), c.spec()))
    await trio.sleep(0.5)
    b.before = trio.lowlevel.checkpoint
    a.fail(ValueError("broken"))
    await trio.sleep(2)
    assert tree.up
    assert a.start_times == b.start_times == pytest.approx([0.0, 1.5])
    assert c.start_times == pytest.approx([1.5])


async def test_a_stop_ends_a_start_whose_base_has_just_ended(
    a: Child, b: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    b.before = trio.sleep_forever
    tree = grow(rest_for_one(a.spec(), b.spec()))
    await trio.sleep(0.5)
    a.fail(ValueError("broken"))
    tree.supervisor.stop()
    await tree.over.wait()
    assert tree.end is None
    assert [child.state for child in tree.supervisor.snapshot()] == [
        ChildState.DOWN,
        ChildState.DOWN,
    ]


async def test_who_begins_after_a_base_has_ended_waits_for_it_and_is_seen_to(
    grow: Grow, a: Child, b: Child, c: Child, autojump_clock: MockClock
) -> None:
    async def see_the_base_end() -> None:
        if b.instances == 1:
            a.fail(ValueError("broken"))
            await trio.sleep_forever()

    b.before = see_the_base_end
    tree = rest_for_one(a.spec(), b.spec(), c.spec(), replace(c.spec(), name="another like it"))
    grow(tree)
    await trio.sleep(0.5)
    assert [child.state for child in tree.snapshot()] == [ChildState.WAITING] * 4
    await trio.sleep(1.0)
    assert [child.state for child in tree.snapshot()] == [ChildState.RUNNING] * 4
    assert c.instances == 2  # one of each of the two
