"""Starting: in order, each when the one before it serves, and all or nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.supervision.actor import ActorGone, Mailbox
from smartlinkd.supervision.child import ChildSpec, ChildState
from smartlinkd.supervision.policy import Backoff, Restart
from smartlinkd.supervision.supervisor import Escalated, Supervisor

if TYPE_CHECKING:
    from tests.supervision.conftest import Child, Grow


async def take_two_seconds() -> None:
    await trio.sleep(2)


async def break_down() -> None:
    raise ValueError("broken")


async def break_down_in_a_nursery() -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(break_down)


async def test_each_child_starts_when_the_one_before_it_serves(
    a: Child, b: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    a.before = b.before = take_two_seconds
    tree = grow(Supervisor("tree", [a.spec(), b.spec()]))
    await trio.sleep(1)
    assert a.events == ["a starts"]
    await trio.sleep(2)
    assert a.events == ["a starts", "a serves", "b starts"]
    assert not tree.up
    await trio.sleep(2)
    assert a.events == ["a starts", "a serves", "b starts", "b serves"]
    assert tree.up


async def test_a_supervisor_without_children_is_up_until_it_is_stopped(
    grow: Grow, autojump_clock: MockClock
) -> None:
    tree = grow(Supervisor("tree", []))
    await trio.sleep(100)
    assert tree.up
    assert not tree.over.is_set()
    tree.supervisor.stop()
    await tree.over.wait()
    assert tree.end is None


@pytest.mark.parametrize("restart", list(Restart))
async def test_a_child_that_does_not_start_ends_it_all(
    a: Child, b: Child, c: Child, grow: Grow, restart: Restart
) -> None:
    b.before = break_down
    tree = grow(Supervisor("tree", [a.spec(), b.spec(restart=restart), c.spec()]))
    await tree.over.wait()
    assert isinstance(tree.end, Escalated)
    assert str(tree.end) == "b did not start: ValueError: broken"
    assert repr(tree.end.__cause__) == repr(ValueError("broken"))  # with its traceback
    assert not tree.up
    assert a.events == [
        *("a starts", "a serves", "b starts", "b ends"),
        *("a is asked", "a ends"),
    ]


async def test_a_group_of_errors_is_a_failure_to_start_too(b: Child, grow: Grow) -> None:
    b.before = break_down_in_a_nursery
    tree = grow(Supervisor("tree", [b.spec()]))
    await tree.over.wait()
    assert isinstance(tree.end, Escalated)
    assert str(tree.end) == "b did not start: ValueError: broken"
    assert isinstance(tree.end.__cause__, ExceptionGroup)


async def test_a_child_that_returns_before_it_serves_has_not_started(grow: Grow) -> None:
    async def return_at_once(task_status: trio.TaskStatus[None]) -> None:
        pass

    tree = grow(Supervisor("tree", [ChildSpec("b", return_at_once)]))
    await tree.over.wait()
    assert isinstance(tree.end, Escalated)
    assert "b did not start: RuntimeError" in str(tree.end)


async def test_a_start_over_its_time_is_cancelled_and_has_failed(
    a: Child, b: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    b.before = trio.sleep_forever
    tree = grow(Supervisor("tree", [a.spec(), b.spec(start_timeout=7.0)]))
    await tree.over.wait()
    assert tree.end_time == pytest.approx(7.0)
    assert isinstance(tree.end, Escalated)
    assert str(tree.end) == "b did not start: TooSlowError: did not serve within 7 s"
    assert b.alive == 0


async def serve_late(task_status: trio.TaskStatus[None]) -> None:
    with trio.CancelScope(shield=True):
        await trio.sleep(9)
    task_status.started()


async def test_serving_too_late_is_not_serving(grow: Grow, autojump_clock: MockClock) -> None:
    async def stay(task_status: trio.TaskStatus[None]) -> None:
        await serve_late(task_status)
        await trio.sleep_forever()

    tree = grow(Supervisor("tree", [ChildSpec("b", stay, start_timeout=7.0)]))
    await tree.over.wait()
    assert isinstance(tree.end, Escalated)
    assert str(tree.end) == "b did not start: TooSlowError: did not serve within 7 s"


async def test_serving_too_late_and_failing_at_once_is_one_failure(
    grow: Grow, autojump_clock: MockClock
) -> None:
    starts: list[float] = []

    async def break_late(task_status: trio.TaskStatus[None]) -> None:
        starts.append(trio.current_time())
        await serve_late(task_status)
        raise ValueError("broken")

    spec = ChildSpec("b", break_late, start_timeout=7.0)
    tree = grow(Supervisor("tree", [spec], backoff=Backoff(first=1.0, jitter=0.0)))
    await trio.sleep(12)
    assert starts == [0.0, 10.0]
    assert tree.supervisor.snapshot()[0].restarts == 1


async def test_a_failure_right_after_serving_is_no_failure_to_start(
    grow: Grow, autojump_clock: MockClock
) -> None:
    starts: list[float] = []

    async def serve_and_break(task_status: trio.TaskStatus[None]) -> None:
        starts.append(trio.current_time())
        task_status.started()
        if len(starts) == 1:
            raise ValueError("broken")
        await trio.sleep_forever()

    spec = ChildSpec("b", serve_and_break)
    tree = grow(Supervisor("tree", [spec], backoff=Backoff(first=1.0, jitter=0.0)))
    await trio.sleep(5)
    assert starts == [0.0, 1.0]
    assert tree.up
    assert tree.end is None


async def test_a_second_started_is_the_childs_own_failure(
    grow: Grow, autojump_clock: MockClock
) -> None:
    async def serve_twice(task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        await trio.lowlevel.checkpoint()
        task_status.started()

    spec = ChildSpec("b", serve_twice, restart=Restart.TEMPORARY)
    tree = grow(Supervisor("tree", [spec]))
    await trio.sleep(1)
    (child,) = tree.supervisor.snapshot()
    assert child.state is ChildState.DOWN
    assert child.last_error is not None
    assert "called 'started' twice" in child.last_error


async def test_a_second_started_while_stopping_does_not_bring_a_child_back(
    grow: Grow, autojump_clock: MockClock
) -> None:
    states: list[ChildState] = []

    async def serve_again_when_cancelled(task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        try:
            await trio.sleep_forever()
        finally:
            with pytest.raises(RuntimeError):
                task_status.started()
            states.append(tree.supervisor.snapshot()[0].state)

    tree = grow(Supervisor("tree", [ChildSpec("b", serve_again_when_cancelled)]))
    await trio.sleep(1)
    tree.supervisor.stop()
    await tree.over.wait()
    assert states == [ChildState.STOPPING]


async def test_stopping_cuts_a_start_short(
    a: Child, b: Child, c: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    b.before = trio.sleep_forever
    tree = grow(Supervisor("tree", [a.spec(), b.spec(), c.spec()]))
    await trio.sleep(1)
    tree.supervisor.stop()
    await tree.over.wait()
    assert tree.end is None
    assert tree.end_time == pytest.approx(1.0)
    assert a.events == [
        *("a starts", "a serves", "b starts", "b ends"),
        *("a is asked", "a ends"),
    ]


async def test_a_start_that_fails_while_it_is_cut_short_is_told(
    b: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    async def break_when_cancelled() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("broken")

    b.before = break_when_cancelled
    tree = grow(Supervisor("tree", [b.spec()]))
    await trio.sleep(1)
    tree.supervisor.stop()
    await tree.over.wait()
    assert isinstance(tree.end, Escalated)


async def test_stopped_before_it_runs_it_starts_nothing(a: Child, grow: Grow) -> None:
    supervisor = Supervisor("tree", [a.spec()])
    supervisor.stop()
    tree = grow(supervisor)
    await tree.over.wait()
    assert tree.end is None
    assert a.events == []


async def test_a_child_may_stop_it_all_in_the_moment_it_serves(
    a: Child, b: Child, grow: Grow
) -> None:
    async def stop_it_all() -> None:
        supervisor.stop()

    a.before = stop_it_all
    supervisor = Supervisor("tree", [a.spec(), b.spec()])
    tree = grow(supervisor)
    await tree.over.wait()
    assert tree.end is None
    assert b.instances == 0
    assert a.alive == 0


async def do_nothing(state: None) -> None:
    pass


async def test_mailboxes_are_closed_when_it_does_not_come_up(
    a: Child, b: Child, grow: Grow
) -> None:
    mailboxes = [Mailbox[None]("a", size=8), Mailbox[None]("b", size=8)]
    a.before = break_down
    specs = [a.spec(mailbox=mailboxes[0]), b.spec(mailbox=mailboxes[1])]
    tree = grow(Supervisor("tree", specs))
    await tree.over.wait()
    for mailbox in mailboxes:
        with pytest.raises(ActorGone):
            await mailbox.ask(do_nothing)


async def test_a_mailbox_takes_requests_before_its_child_serves(
    a: Child, grow: Grow, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    answers: list[str] = []

    async def ask() -> None:
        answers.append(await mailbox.ask(answer))

    async def answer(state: None) -> str:
        return "yes"

    async def serve(task_status: trio.TaskStatus[None]) -> None:
        await trio.sleep(5)
        task_status.started()
        await mailbox.serve(None)

    mailbox = Mailbox[None]("a", size=8)
    nursery.start_soon(ask)
    grow(Supervisor("tree", [ChildSpec("a", serve, mailbox=mailbox)]))
    await trio.sleep(4)
    await wait_all_tasks_blocked()
    assert answers == []
    await trio.sleep(2)
    assert answers == ["yes"]
