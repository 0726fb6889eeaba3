"""Stopping: in reverse order, each with its grace, and nothing left whatever happens."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import MockClock

from smartlinkd.supervision.actor import ActorGone, Mailbox
from smartlinkd.supervision.child import ChildSpec, ChildState
from smartlinkd.supervision.policy import Backoff, Restart
from smartlinkd.supervision.supervisor import Supervisor

if TYPE_CHECKING:
    from tests.supervision.conftest import Child, Grow

EVEN = Backoff(first=1.0, jitter=0.0)


async def test_children_stop_in_reverse_each_when_the_one_after_it_has_ended(
    a: Child, b: Child, c: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    b.stop_takes = 2.0
    tree = grow(Supervisor("tree", [a.spec(), b.spec(), c.spec()]))
    await trio.sleep(1)
    a.events.clear()
    tree.supervisor.stop()
    await trio.sleep(1)
    assert a.events == ["c is asked", "c ends", "b is asked"]
    assert not tree.over.is_set()
    await tree.over.wait()
    assert a.events == ["c is asked", "c ends", "b is asked", "b ends", "a is asked", "a ends"]
    assert tree.end is None
    assert tree.end_time == pytest.approx(3.0)


async def test_it_is_known_to_be_stopping_from_the_word_to_the_end(
    a: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    a.stop_takes = 2.0
    tree = grow(Supervisor("tree", [a.spec()]))
    await trio.sleep(1)
    seen = [tree.supervisor.stopping]
    tree.supervisor.stop()
    seen.append(tree.supervisor.stopping)
    await trio.sleep(1)
    seen.append(tree.supervisor.stopping)
    await tree.over.wait()
    seen.append(tree.supervisor.stopping)
    assert seen == [False, True, True, False]


async def test_a_child_without_a_stop_of_its_own_is_cancelled_at_once(
    a: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    tree = grow(Supervisor("tree", [ChildSpec("a", a.run)]))
    await trio.sleep(1)
    tree.supervisor.stop()
    await tree.over.wait()
    assert tree.end is None
    assert tree.end_time == pytest.approx(1.0)
    assert a.events[-1] == "a ends"


@pytest.mark.parametrize("takes", [10.0, float("inf")])
async def test_after_its_grace_a_child_is_cancelled_and_the_others_go_on(
    *,
    a: Child,
    b: Child,
    grow: Grow,
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
    takes: float,
) -> None:
    b.stop_takes = takes
    tree = grow(Supervisor("tree", [a.spec(), b.spec(grace=4.0)]))
    await trio.sleep(1)
    tree.supervisor.stop()
    await tree.over.wait()
    assert tree.end is None
    assert tree.end_time == pytest.approx(5.0)
    assert a.events[-4:] == ["b is asked", "b ends", "a is asked", "a ends"]
    assert caplog.messages == ["b did not stop within 4 s and is cancelled"]


@pytest.mark.parametrize(
    ("allowed", "grace"), [([9.0], 9.0), ([9.0, 6.0], 9.0), ([1.0], 4.0)], ids=str
)
async def test_a_child_may_be_given_more_grace_while_it_runs_and_never_less(
    *, a: Child, grow: Grow, autojump_clock: MockClock, allowed: list[float], grace: float
) -> None:
    a.stop_takes = float("inf")
    tree = grow(Supervisor("tree", [a.spec(grace=4.0)]))
    await trio.sleep(1)
    for seconds in allowed:
        tree.supervisor.allow("a", seconds)
    assert tree.supervisor.longest_end == grace
    tree.supervisor.stop()
    await tree.over.wait()
    assert tree.end_time == pytest.approx(1 + grace)


async def test_a_child_that_stops_within_its_grace_is_not_cancelled(
    a: Child, grow: Grow, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    a.stop_takes = 3.9
    tree = grow(Supervisor("tree", [a.spec(grace=4.0)]))
    await trio.sleep(1)
    tree.supervisor.stop()
    await tree.over.wait()
    assert tree.end_time == pytest.approx(4.9)
    assert caplog.messages == []


async def tidy_slowly(task_status: trio.TaskStatus[None]) -> None:
    task_status.started()
    try:
        await trio.sleep_forever()
    finally:
        with trio.CancelScope(shield=True):
            await trio.sleep(7)


async def test_a_cancelled_child_is_waited_for_while_it_tidies_up(
    grow: Grow, autojump_clock: MockClock
) -> None:
    tree = grow(Supervisor("tree", [ChildSpec("a", tidy_slowly)]))
    await trio.sleep(1)
    tree.supervisor.stop()
    await tree.over.wait()
    assert tree.end_time == pytest.approx(8.0)


async def test_a_stop_that_raises_is_told_and_its_child_cancelled(
    a: Child, b: Child, grow: Grow, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    def break_down() -> None:
        raise ValueError("broken")

    tree = grow(Supervisor("tree", [a.spec(), ChildSpec("b", b.run, stop=break_down)]))
    await trio.sleep(1)
    tree.supervisor.stop()
    await tree.over.wait()
    assert tree.end is None
    assert tree.end_time == pytest.approx(1.0)
    assert a.events[-3:] == ["b ends", "a is asked", "a ends"]
    assert caplog.messages == ["b could not be asked to stop and is cancelled"]
    assert caplog.records[0].exc_info is not None


async def test_a_failure_while_stopping_is_told_and_stops_nobody_from_stopping(
    a: Child, b: Child, grow: Grow, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    def break_down() -> None:
        raise ValueError("broken")

    b.tidy = break_down
    tree = grow(Supervisor("tree", [a.spec(), b.spec()]))
    await trio.sleep(1)
    tree.supervisor.stop()
    await tree.over.wait()
    assert tree.end is None
    assert caplog.record_tuples == [
        ("smartlinkd.supervision.supervisor", logging.WARNING, "b failed while stopping")
    ]
    assert tree.supervisor.snapshot()[1].last_error == "ValueError: broken"
    assert a.events[-2:] == ["a is asked", "a ends"]


async def test_a_failure_at_the_moment_of_the_stop_is_told(
    a: Child, b: Child, grow: Grow, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    tree = grow(Supervisor("tree", [a.spec(), b.spec()]))
    await trio.sleep(1)
    b.fail(ValueError("broken"))
    tree.supervisor.stop()
    await tree.over.wait()
    assert tree.end is None
    assert [message.split()[:2] for message in caplog.messages] == [["b", "failed"]]
    assert b.instances == 1


async def test_a_child_that_has_ended_is_not_asked_to_stop(
    a: Child, b: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    def stop_it_all() -> None:
        tree.supervisor.stop()

    b.tidy = stop_it_all  # so the supervisor finds both at once: b has ended, and it is to stop
    tree = grow(Supervisor("tree", [a.spec(), b.spec()]))
    await trio.sleep(1)
    b.fail(ValueError("broken"))
    await tree.over.wait()
    assert a.events[-3:] == ["b ends", "a is asked", "a ends"]
    assert "b is asked" not in a.events


async def test_stopped_during_a_wait_it_starts_nothing_again(
    a: Child, b: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    tree = grow(Supervisor("tree", [a.spec(), b.spec()], backoff=EVEN))
    await trio.sleep(1)
    b.fail(ValueError("broken"))
    await trio.sleep(0.5)
    tree.supervisor.stop()
    await tree.over.wait()
    assert tree.end is None
    assert tree.end_time == pytest.approx(1.5)
    assert b.instances == 1
    assert "b is asked" not in a.events


async def test_nothing_is_due_any_more_while_the_others_stop(
    a: Child, b: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    a.stop_takes = 2.0
    tree = grow(Supervisor("tree", [a.spec(), b.spec()], backoff=EVEN))
    await trio.sleep(1)
    b.fail(ValueError("broken"))
    await trio.sleep(0.5)
    tree.supervisor.stop()
    await trio.sleep(0.1)
    stopping, down = tree.supervisor.snapshot()
    assert (stopping.state, down.state) == (ChildState.STOPPING, ChildState.DOWN)
    assert down.next_retry is None
    await tree.over.wait()


async def test_stopping_cuts_a_restart_short(
    a: Child, b: Child, c: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    tree = grow(Supervisor("tree", [a.spec(), b.spec(), c.spec()], backoff=EVEN))
    await trio.sleep(1)
    b.before = trio.sleep_forever
    b.fail(ValueError("broken"))
    c.fail(ValueError("broken"))
    await trio.sleep(1.5)
    tree.supervisor.stop()
    await tree.over.wait()
    assert tree.end is None
    assert tree.end_time == pytest.approx(2.5)
    assert (b.instances, b.alive, c.instances) == (2, 0, 1)


async def test_stopping_twice_is_stopping_once(
    a: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    a.stop_takes = 2.0
    tree = grow(Supervisor("tree", [a.spec()]))
    await trio.sleep(1)
    tree.supervisor.stop()
    await trio.sleep(1)
    tree.supervisor.stop()
    await tree.over.wait()
    assert tree.end is None
    assert a.events.count("a is asked") == 1


async def test_cancelled_it_ends_at_once_with_all_its_children(
    a: Child, b: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    a.stop_takes = b.stop_takes = 100.0
    mailboxes = [Mailbox[None]("a", size=8), Mailbox[None]("b", size=8)]
    specs = [a.spec(mailbox=mailboxes[0]), b.spec(mailbox=mailboxes[1])]
    tree = grow(Supervisor("tree", specs))
    await trio.sleep(1)
    tree.scope.cancel()
    await tree.over.wait()
    assert tree.scope.cancelled_caught
    assert tree.end_time == pytest.approx(1.0)
    assert (a.alive, b.alive) == (0, 0)
    assert {child.state for child in tree.supervisor.snapshot()} == {ChildState.DOWN}
    for mailbox in mailboxes:
        with pytest.raises(ActorGone):
            await mailbox.ask(do_nothing)


async def do_nothing(state: None) -> None:
    pass


async def test_cancelled_while_it_stops_it_does_not_wait_for_any_grace(
    a: Child, b: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    b.stop_takes = 100.0
    tree = grow(Supervisor("tree", [a.spec(), b.spec(grace=50.0)]))
    await trio.sleep(1)
    tree.supervisor.stop()
    await trio.sleep(1)
    tree.scope.cancel()
    await tree.over.wait()
    assert tree.end_time == pytest.approx(2.0)
    assert (a.alive, b.alive) == (0, 0)


@pytest.mark.parametrize("cancel", [True, False])
async def test_an_error_while_cancelled_is_told(
    *,
    a: Child,
    grow: Grow,
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
    cancel: bool,
) -> None:
    def break_down() -> None:
        raise ValueError("broken")

    a.tidy = break_down
    tree = grow(Supervisor("tree", [ChildSpec("a", a.run)]))
    await trio.sleep(1)
    (tree.scope.cancel if cancel else tree.supervisor.stop)()
    await tree.over.wait()
    assert [(record.exc_info or (None,))[0] for record in caplog.records] == [ValueError]


@pytest.mark.parametrize("fails", [True, False])
async def test_of_a_nursery_cancelled_in_a_child_only_the_errors_are_told(
    *, grow: Grow, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, fails: bool
) -> None:
    async def end_badly() -> None:
        try:
            await trio.sleep_forever()
        finally:
            if fails:
                raise ValueError("broken")

    async def work_in_a_nursery(task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(end_badly)
            nursery.start_soon(trio.sleep_forever)
            task_status.started()

    # The last child keeps the supervisor from stopping the first by itself.
    specs = [ChildSpec("a", work_in_a_nursery), ChildSpec("b", tidy_slowly)]
    tree = grow(Supervisor("tree", specs))
    await trio.sleep(1)
    tree.scope.cancel()
    await tree.over.wait()
    assert tree.end is None
    assert tree.scope.cancelled_caught
    assert caplog.messages == (["a failed"] if fails else [])
    last_error = tree.supervisor.snapshot()[0].last_error
    assert last_error == ("ValueError: broken" if fails else None)


async def test_several_interrupts_at_once_stay_a_group(
    a: Child, b: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    a.tidy = b.tidy = interrupt
    tree = grow(Supervisor("tree", [a.spec(), b.spec()]))
    await trio.sleep(1)
    a.finish()
    await tree.over.wait()
    assert isinstance(tree.end, BaseExceptionGroup)
    assert [type(error) for error in tree.end.exceptions] == [KeyboardInterrupt] * 2


@pytest.mark.parametrize("end", [Supervisor.stop, None])
async def test_it_can_be_run_again_from_the_start(
    *,
    a: Child,
    b: Child,
    grow: Grow,
    autojump_clock: MockClock,
    end: Callable[[Supervisor], None] | None,
) -> None:
    supervisor = Supervisor("tree", [a.spec(), b.spec(restart=Restart.TEMPORARY)], backoff=EVEN)
    tree = grow(supervisor)
    await trio.sleep(1)
    b.finish()
    await trio.sleep(1)
    if end is None:
        tree.scope.cancel()
    else:
        end(supervisor)
    await tree.over.wait()
    again = grow(supervisor)
    await trio.sleep(1)
    assert again.up
    assert (a.serving, b.serving) == (True, True)
    a.fail(ValueError("broken"))
    await trio.sleep(2)
    assert a.serving
