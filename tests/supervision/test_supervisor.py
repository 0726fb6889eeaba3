"""Supervisors: starts, restarts, stops, cancellation, nesting, snapshots and watched loops."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from math import inf

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.logs import LogEvent
from smartlinkd.logs.context import ContextFilter
from smartlinkd.supervision.actor import ActorGone, ActorRestarting, Mailbox
from smartlinkd.supervision.child import ChildSnapshot, ChildSpec, ChildState
from smartlinkd.supervision.heartbeat import Heartbeat
from smartlinkd.supervision.policy import Backoff, Intensity, Strategy
from smartlinkd.supervision.supervisor import Escalated, Supervisor
from tests.supervision.conftest import Child, Grow, do_nothing

EVEN = Backoff(first=1.0, longest=8.0, healthy=60.0, jitter=0.0)
OFTEN = Intensity(restarts=100)
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return EPOCH + timedelta(seconds=seconds)


def wall() -> datetime:
    """A wall clock that agrees with the mock clock."""
    return at(trio.current_time())


def as_child(supervisor: Supervisor) -> ChildSpec:
    return ChildSpec(
        supervisor.name,
        supervisor.run,
        stop=supervisor.stop,
        grace=60.0,
        watched_loops=supervisor.watched_loops,
    )


async def break_down() -> None:
    raise ValueError("broken")


async def break_down_in_a_nursery() -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(break_down)


async def serve_late() -> None:
    with trio.CancelScope(shield=True):
        await trio.sleep(9)


def raise_error() -> None:
    raise ValueError("broken")


async def hang_at_its_end(release: trio.Event, task_status: trio.TaskStatus[None]) -> None:
    task_status.started()
    with trio.CancelScope(shield=True):
        await release.wait()


# Starting


async def test_children_start_in_order_each_when_the_one_before_it_serves(
    a: Child, b: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    a.before = b.before = partial(trio.sleep, 2)
    tree = grow(Supervisor("tree", [a.spec(), b.spec()]))
    await trio.sleep(3)
    assert (a.events, tree.up) == (["a starts", "a serves", "b starts"], False)
    await trio.sleep(2)
    assert (a.events[3:], tree.up) == (["b serves"], True)


@pytest.mark.parametrize(
    ("before", "why"),
    [
        (break_down, "ValueError: broken"),
        (break_down_in_a_nursery, "ValueError: broken"),
        (trio.sleep_forever, "TooSlowError: did not serve within 7 s"),
        (serve_late, "TooSlowError: did not serve within 7 s"),
    ],
)
async def test_first_start_that_fails_stops_all_in_reverse_and_escalates(
    *,
    a: Child,
    b: Child,
    c: Child,
    grow: Grow,
    autojump_clock: MockClock,
    before: Callable[[], Awaitable[None]],
    why: str,
) -> None:
    b.before = before
    mailbox = Mailbox[None]("c", size=8)
    specs = [a.spec(), b.spec(start_timeout=7.0), c.spec(mailbox=mailbox)]
    tree = grow(Supervisor("tree", specs))
    await tree.over.wait()
    assert isinstance(tree.end, Escalated)
    assert str(tree.end) == f"b did not start: {why}"
    assert tree.end.__cause__ is not None  # with its traceback
    assert not tree.up
    assert (a.instances, a.alive, b.alive, c.instances) == (1, 0, 0, 0)
    assert a.events[-2:] == ["a is asked", "a ends"]
    with pytest.raises(ActorGone):
        await mailbox.ask(do_nothing)


@pytest.mark.parametrize("slowly", [False, True])
async def test_failure_right_after_serving_is_one_restart(
    a: Child, grow: Grow, autojump_clock: MockClock, slowly: bool
) -> None:
    async def run(task_status: trio.TaskStatus[None]) -> None:
        starts.append(trio.current_time())
        if slowly:
            await serve_late()
        task_status.started()
        raise ValueError("broken")

    starts: list[float] = []
    spec = ChildSpec("b", run, start_timeout=7.0)
    tree = grow(Supervisor("tree", [spec], backoff=EVEN))
    await trio.sleep(12 if slowly else 2)
    assert starts == ([0.0, 10.0] if slowly else [0.0, 1.0])
    assert tree.supervisor.snapshot()[0].restarts == 1


@pytest.mark.parametrize("when", ["before it runs", "while a child starts", "as a child serves"])
async def test_stop_during_the_start_starts_no_more_children(
    *, a: Child, b: Child, c: Child, grow: Grow, autojump_clock: MockClock, when: str
) -> None:
    async def stop_all() -> None:
        supervisor.stop()

    b.before = stop_all if when == "as a child serves" else trio.sleep_forever
    supervisor = Supervisor("tree", [a.spec(), b.spec(), c.spec()])
    if when == "before it runs":
        supervisor.stop()
    tree = grow(supervisor)
    await trio.sleep(1)
    supervisor.stop()
    await tree.over.wait()
    assert tree.end is None
    assert (a.instances, c.instances) == (0 if when == "before it runs" else 1, 0)
    assert (a.alive, b.alive) == (0, 0)


# Restarting


async def test_restart_waits_double_with_each_failure_in_a_row_and_include_failed_starts(
    a: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    tree = grow(
        Supervisor("tree", [a.spec(start_timeout=5.0)], backoff=EVEN, intensity=OFTEN, wall=wall)
    )
    await trio.sleep(100)
    a.fail()  # healthy until now: the first wait
    await trio.sleep(2)
    a.before = break_down
    a.fail()  # at 102
    await trio.sleep(3)  # the start at 104 fails
    a.before = trio.sleep_forever
    await trio.sleep(9)  # the start at 108 takes too long, until 113
    assert tree.supervisor.snapshot() == [
        ChildSnapshot(
            *("a", ChildState.WAITING, at(113), 3, "TooSlowError: did not serve within 5 s", 7.0)
        )
    ]
    await trio.sleep(8)
    assert a.start_times == [0.0, 101.0, 104.0, 108.0, 121.0]


@pytest.mark.parametrize(("uptime", "wait"), [(60.0, 1.0), (59.9, 2.0)])
async def test_restart_wait_starts_over_after_a_healthy_time_without_the_start(
    a: Child, grow: Grow, autojump_clock: MockClock, uptime: float, wait: float
) -> None:
    grow(Supervisor("tree", [a.spec(start_timeout=100.0)], backoff=EVEN, intensity=OFTEN))
    await trio.sleep(1)
    a.before = partial(trio.sleep, 50)
    a.fail()  # serves at 52
    await trio.sleep_until(52 + uptime)
    a.fail()
    await trio.sleep(10)
    assert a.start_times[-1] == pytest.approx(52 + uptime + wait)


@pytest.mark.parametrize("strategy", list(Strategy))
@pytest.mark.parametrize("also", ["another child", "a failed start"])
async def test_one_restart_more_than_the_limit_over_all_children_escalates(
    *, a: Child, b: Child, grow: Grow, autojump_clock: MockClock, strategy: Strategy, also: str
) -> None:
    tree = grow(
        Supervisor(
            "tree",
            [a.spec(), b.spec()],
            strategy=strategy,
            backoff=EVEN,
            intensity=Intensity(restarts=2, period=60.0),
        )
    )
    await trio.sleep(1)
    for _ in range(2):
        a.fail()
        await trio.sleep(5)
    assert not tree.over.is_set()
    await trio.sleep(60)  # those are no longer counted
    if also == "a failed start":
        b.before = break_down
        b.fail()
    else:
        for child in (b, a, b):
            child.fail()
            await trio.sleep(5)
    await tree.over.wait()
    assert isinstance(tree.end, Escalated)
    assert str(tree.end) == (
        "b needed more than 2 restarts in 60 s; its last error: ValueError: broken"
    )
    assert (a.alive, b.alive) == (0, 0)


@pytest.mark.parametrize("strategy", list(Strategy))
async def test_mailbox_of_a_child_that_starts_or_comes_back_keeps_its_calls(
    a: Child, grow: Grow, autojump_clock: MockClock, strategy: Strategy
) -> None:
    async def serve(task_status: trio.TaskStatus[None]) -> None:
        await trio.sleep(2)
        task_status.started()
        await mailbox.serve(None)

    mailbox = Mailbox[None]("b", size=8)
    specs = [a.spec(), ChildSpec("b", serve, mailbox=mailbox)]
    grow(Supervisor("tree", specs, strategy=strategy, backoff=EVEN))
    await mailbox.ask(do_nothing)
    assert trio.current_time() == 2.0
    if strategy is Strategy.REST_FOR_ONE:
        a.fail()
        await trio.sleep(0.5)
    else:
        with pytest.raises(ActorRestarting):
            await mailbox.ask(raise_in_a_call)
    await mailbox.ask(do_nothing)
    assert trio.current_time() == 5.0


async def raise_in_a_call(state: None) -> None:
    raise ValueError("broken")


# Stopping


async def test_stop_is_known_until_all_have_ended_and_a_second_one_changes_nothing(
    a: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    a.stop_takes = 2.0
    tree = grow(Supervisor("tree", [a.spec()]))
    await trio.sleep(1)
    seen = [tree.supervisor.stopping]
    for _ in range(2):
        tree.supervisor.stop()
        await trio.sleep(0.5)
        seen.append(tree.supervisor.stopping)
    await tree.over.wait()
    assert [*seen, tree.supervisor.stopping] == [False, True, True, False]
    assert a.events.count("a is asked") == 1
    assert (tree.end, tree.end_time) == (None, 3.0)


@pytest.mark.parametrize("cancel", [True, False])
async def test_child_that_is_cancelled_is_waited_for(
    grow: Grow, autojump_clock: MockClock, cancel: bool
) -> None:
    async def tidy_slowly(task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        try:
            await trio.sleep_forever()
        finally:
            await serve_late()

    tree = grow(Supervisor("tree", [ChildSpec("a", tidy_slowly)]))
    await trio.sleep(1)
    (tree.scope.cancel if cancel else tree.supervisor.stop)()
    await tree.over.wait()
    assert (tree.end, tree.end_time) == (None, 10.0)


@pytest.mark.parametrize(
    ("takes", "allowed", "end_time"),
    [(3.9, [], 4.9), (10.0, [], 5.0), (inf, [9.0, 6.0], 10.0), (inf, [1.0], 5.0)],
)
async def test_child_is_cancelled_after_its_grace_which_can_be_extended(
    *,
    a: Child,
    b: Child,
    grow: Grow,
    autojump_clock: MockClock,
    takes: float,
    allowed: list[float],
    end_time: float,
) -> None:
    b.stop_takes = takes
    never_asked = ChildSpec("c", a.run, grace=99.0)
    assert Supervisor("tree", [b.spec(grace=4.0), never_asked]).longest_end == 4.0
    tree = grow(Supervisor("tree", [a.spec(), b.spec(grace=4.0)]))
    await trio.sleep(1)
    for seconds in allowed:
        tree.supervisor.extend_grace("b", seconds)
    assert tree.supervisor.longest_end == 5.0 + max([4.0, *allowed])
    await tree.stop()
    assert tree.end_time == pytest.approx(end_time)
    assert a.events[-4:] == ["b is asked", "b ends", "a is asked", "a ends"]


@pytest.mark.parametrize("how", ["cannot be asked", "fails while stopping", "fails as all stops"])
async def test_failure_of_a_child_as_it_stops_is_logged_and_the_others_still_stop(
    *,
    a: Child,
    b: Child,
    grow: Grow,
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
    how: str,
) -> None:
    spec = b.spec()
    if how == "cannot be asked":
        spec = ChildSpec("b", b.run, stop=raise_error)
    if how == "fails while stopping":
        b.tidy = raise_error
    tree = grow(Supervisor("tree", [a.spec(), spec]))
    await trio.sleep(1)
    if how == "fails as all stops":
        b.fail()
    await tree.stop()
    assert (tree.end, tree.end_time) == (None, 1.0)
    assert a.events[-3:] == ["b ends", "a is asked", "a ends"]
    (record,) = caplog.records
    assert record.message.startswith("b ")
    assert (record.exc_info or (None,))[0] is ValueError
    error = None if how == "cannot be asked" else "ValueError: broken"
    assert tree.supervisor.snapshot()[1].last_error == error


async def test_child_that_has_ended_is_not_asked_to_stop(
    a: Child, b: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    tree = grow(Supervisor("tree", [a.spec(), b.spec()]))
    b.tidy = tree.supervisor.stop  # so the supervisor reads both at once
    await trio.sleep(1)
    b.fail()
    await tree.over.wait()
    assert a.events[-3:] == ["b ends", "a is asked", "a ends"]


@pytest.mark.parametrize("restarting", ["waits", "starts"])
async def test_stop_during_a_restart_starts_nothing_again(
    *, a: Child, b: Child, c: Child, grow: Grow, autojump_clock: MockClock, restarting: str
) -> None:
    a.stop_takes = 2.0
    tree = grow(Supervisor("tree", [a.spec(), b.spec(), c.spec()], backoff=EVEN, wall=wall))
    await trio.sleep(1)
    b.before = trio.sleep_forever
    b.fail()
    c.fail()
    await trio.sleep_until(1.5 if restarting == "waits" else 4)
    assert tree.supervisor.snapshot()[2].next_retry == (0.5 if restarting == "waits" else 0.0)
    tree.supervisor.stop()
    await trio.sleep(0.1)
    since = 1.5 if restarting == "waits" else 4
    assert [(each.state, each.since, each.next_retry) for each in tree.supervisor.snapshot()] == [
        (ChildState.STOPPING, at(since), None),
        (ChildState.DOWN, at(since), None),
        (ChildState.DOWN, at(since), None),
    ]
    await tree.over.wait()
    assert (tree.end, tree.end_time) == (None, since + 2)
    assert (b.instances, b.alive, c.instances) == (1 if restarting == "waits" else 2, 0, 1)


@pytest.mark.parametrize("while_stopping", [True, False])
async def test_cancelled_supervisor_ends_at_once_with_all_its_children(
    a: Child, b: Child, grow: Grow, autojump_clock: MockClock, while_stopping: bool
) -> None:
    a.stop_takes = b.stop_takes = 100.0
    mailbox = Mailbox[None]("a", size=8)
    tree = grow(Supervisor("tree", [a.spec(mailbox=mailbox), b.spec(grace=50.0)]))
    await trio.sleep(1)
    if while_stopping:
        tree.supervisor.stop()
        await trio.sleep(1)
    tree.scope.cancel()
    await tree.over.wait()
    assert tree.scope.cancelled_caught
    assert tree.end_time == (2.0 if while_stopping else 1.0)
    assert (a.alive, b.alive) == (0, 0)
    assert {child.state for child in tree.supervisor.snapshot()} == {ChildState.DOWN}
    with pytest.raises(ActorGone):
        await mailbox.ask(do_nothing)


@pytest.mark.parametrize("fails", [True, False])
async def test_errors_beside_a_cancellation_are_logged_and_the_cancellation_goes_on(
    grow: Grow, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, fails: bool
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
    release = trio.Event()
    last = ChildSpec("b", partial(hang_at_its_end, release))
    tree = grow(Supervisor("tree", [ChildSpec("a", work_in_a_nursery), last]))
    await trio.sleep(1)
    tree.scope.cancel()
    await wait_all_tasks_blocked()
    release.set()
    await tree.over.wait()
    assert (tree.end, tree.scope.cancelled_caught) == (None, True)
    assert len(caplog.records) == int(fails)
    error = "ValueError: broken" if fails else None
    assert tree.supervisor.snapshot()[0].last_error == error


@pytest.mark.parametrize("how", ["alone", "beside an error", "twice"])
async def test_keyboard_interrupt_in_a_child_ends_the_supervisor(
    *, a: Child, b: Child, grow: Grow, autojump_clock: MockClock, how: str
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    if how == "twice":
        a.tidy = interrupt
    error: BaseException = KeyboardInterrupt()
    if how == "beside an error":
        error = BaseExceptionGroup("both", [error, ValueError("broken")])
    tree = grow(Supervisor("tree", [a.spec(), b.spec()], backoff=EVEN))
    await trio.sleep(1)
    b.fail(error)
    await tree.over.wait()
    interrupts = BaseExceptionGroup("", [tree.end]) if tree.end is not None else None
    assert interrupts is not None
    assert interrupts.subgroup(Exception) is None
    assert isinstance(tree.end, BaseExceptionGroup) is (how != "alone")
    assert (a.alive, b.alive, b.instances) == (0, 0, 1)


@pytest.mark.parametrize("cancel", [True, False])
async def test_supervisor_that_has_ended_can_run_again(
    a: Child, b: Child, grow: Grow, autojump_clock: MockClock, cancel: bool
) -> None:
    supervisor = Supervisor("tree", [a.spec(), b.spec()], backoff=EVEN)
    tree = grow(supervisor)
    await trio.sleep(1)
    b.finish()
    await trio.sleep(0.5)  # it waits for its restart
    (tree.scope.cancel if cancel else supervisor.stop)()
    await tree.over.wait()
    again = grow(supervisor)
    await trio.sleep(1)
    assert (again.up, a.serving, b.serving) == (True, True, True)
    a.fail()
    await trio.sleep(2)
    assert a.serving


# Nesting


async def test_nested_supervisor_that_escalates_is_restarted_and_its_mailboxes_work_again(
    a: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    async def serve(task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        await mailbox.serve(None)

    mailbox = Mailbox[None]("b", size=8)
    once = Intensity(restarts=1, period=20.0)
    specs = [ChildSpec("b", serve, mailbox=mailbox)]
    inner = Supervisor("inner", specs, backoff=EVEN, intensity=once)
    tree = grow(Supervisor("outer", [a.spec(), as_child(inner)], backoff=EVEN))
    await trio.sleep(1)
    for _ in range(2):
        with pytest.raises(ActorRestarting):
            await mailbox.ask(raise_in_a_call)
        await trio.sleep(0.5)
    with pytest.raises(ActorGone):
        await mailbox.ask(do_nothing)
    await trio.sleep(1)
    await mailbox.ask(do_nothing)
    outer = tree.supervisor.snapshot()[1]
    assert (outer.state, outer.restarts) == (ChildState.RUNNING, 1)
    assert str(outer.last_error).startswith("Escalated: b needed more than 1 restarts")
    await trio.sleep(20.0)  # the count is over, and the backoff has started over
    failed_at = trio.current_time()
    with pytest.raises(ActorRestarting):
        await mailbox.ask(raise_in_a_call)
    await mailbox.ask(do_nothing)
    assert trio.current_time() == pytest.approx(failed_at + 1.0)
    assert a.instances == 1


@pytest.mark.parametrize("lives_for", [0.1, 8.0])
async def test_nested_child_that_always_fails_ends_the_outermost_supervisor(
    a: Child, grow: Grow, autojump_clock: MockClock, lives_for: float
) -> None:
    async def fail_again_and_again(task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        await trio.sleep(lives_for)
        raise ValueError("broken")

    inner = Supervisor("inner", [ChildSpec("b", fail_again_and_again)])
    tree = grow(Supervisor("outer", [a.spec(), as_child(inner)]))
    with trio.fail_after(120.0):
        await tree.over.wait()
    assert isinstance(tree.end, Escalated)
    assert str(tree.end) == (
        "inner needed more than 5 restarts in 60 s; its last error: Escalated: "
        "b needed more than 5 restarts in 60 s; its last error: ValueError: broken"
    )
    assert a.instances == 1


# Snapshots and logs


async def test_snapshot_shows_each_state_of_a_child_since_when(
    a: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    a.before = partial(trio.sleep, 3)
    a.stop_takes = 2.0
    tree = grow(Supervisor("tree", [a.spec()], backoff=EVEN, wall=wall))
    error = "ValueError: broken"
    seen = [*tree.supervisor.snapshot()]
    for moment in (1, 4, 5.5, 7, 11, 13):
        await trio.sleep_until(moment)
        seen += tree.supervisor.snapshot()
        if moment == 4:
            await trio.sleep_until(5)
            a.fail()
        if moment == 7:
            await trio.sleep_until(10)
            tree.supervisor.stop()
    assert seen == [
        ChildSnapshot("a", ChildState.DOWN, at(0), 0, None, None),
        ChildSnapshot("a", ChildState.STARTING, at(0), 0, None, None),
        ChildSnapshot("a", ChildState.RUNNING, at(3), 0, None, None),
        ChildSnapshot("a", ChildState.WAITING, at(5), 0, error, 0.5),
        ChildSnapshot("a", ChildState.STARTING, at(6), 1, error, None),
        ChildSnapshot("a", ChildState.STOPPING, at(10), 1, error, None),
        ChildSnapshot("a", ChildState.DOWN, at(12), 1, error, None),
    ]


async def test_failures_are_logged_once_as_events_of_their_part(
    a: Child, grow: Grow, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def log_and_break_down() -> None:
        logging.getLogger("smartlinkd.test").info("here")
        if a.instances == 2:
            raise KeyError("lost")

    caplog.handler.addFilter(ContextFilter())
    caplog.set_level(logging.INFO)
    a.before = log_and_break_down
    tree = grow(Supervisor("tree", [a.spec()], backoff=EVEN))
    await trio.sleep(1)
    a.fail()
    await trio.sleep(5)
    a.finish()
    await trio.sleep(5)
    await tree.stop()
    errors = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert [(each.exc_info or (None,))[0] for each in errors] == [ValueError, KeyError]
    for each in errors:
        assert each.__dict__["event"] is LogEvent.PART_FAILED
        assert each.__dict__["about"] == {"actor": "a"}
    infos = [each for each in caplog.records if each.levelno == logging.INFO]
    assert [each.message.split()[0] for each in infos] == ["here", "here", "here", "a", "here"]
    assert {each.__dict__["actor"] for each in infos if each.message == "here"} == {"a"}


# Watched loops, and the end


def names(supervisor: Supervisor) -> list[str]:
    return [each.name for each in supervisor.watched_loops()]


async def most_seconds_late(supervisor: Supervisor, seconds: float) -> float:
    """Probe the supervisor's own loop for so long. Return how late it was at most."""
    most, until = 0.0, trio.current_time() + seconds
    while trio.current_time() < until:
        (own, *_) = supervisor.watched_loops()
        own.heartbeat.probe()
        most = max(most, own.seconds_late(trio.current_time()))
        await trio.sleep(5.0)
    return most


async def test_watched_loops_are_those_of_the_supervisor_and_of_all_running_children(
    *, a: Child, b: Child, c: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    def with_heartbeat(child: Child, heartbeat: Heartbeat) -> ChildSpec:
        run, stop = child.run, child.stop
        return ChildSpec(child.name, run, stop=stop, heartbeats=(heartbeat,), busy=7.0)

    beat, named = Heartbeat(lambda: None), Heartbeat(lambda: None, of="disk")
    inner = Supervisor("inner", [with_heartbeat(a, beat)], intensity=Intensity(restarts=0))
    specs = [as_child(inner), b.spec(), with_heartbeat(c, named)]
    tree = Supervisor("tree", specs, strategy=Strategy.REST_FOR_ONE, backoff=EVEN)
    assert names(tree) == []
    c.before = partial(trio.sleep, 3.0)
    grown = grow(tree)
    await trio.sleep(1)
    assert names(tree) == ["tree", "inner", "a"]
    await trio.sleep(3)
    assert names(tree) == ["tree", "inner", "a", "c disk"]
    own, _, first, last = tree.watched_loops()
    assert (own.since, first.since, last.since) == (0.0, 0.0, 3.0)
    assert (own.busy, first.busy) == (0.0, 7.0)
    assert (first.heartbeat, last.heartbeat) == (beat, named)
    assert "Tree.run" in own.task.name
    assert first.task is not last.task
    b.stop_takes = 4.0
    c.fail()
    await wait_all_tasks_blocked()
    assert names(tree) == ["tree", "inner", "a"]  # c waits
    await trio.sleep(6)
    b.fail()
    await trio.sleep(1.5)
    assert names(tree) == ["tree", "inner", "a"]  # c starts
    await trio.sleep(6)
    a.fail()  # escalates, and b is being stopped
    await wait_all_tasks_blocked()
    assert names(tree) == ["tree"]
    grown.scope.cancel()
    await grown.over.wait()
    assert names(tree) == []


async def test_heartbeat_of_a_supervisor_allows_for_slow_starts_and_slow_stops(
    a: Child, b: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    a.before = partial(trio.sleep, 20.0)
    a.stop_takes, b.stop_takes = 40.0, 50.0
    tree = grow(Supervisor("tree", [a.spec(grace=45.0), b.spec(grace=55.0)]))
    await wait_all_tasks_blocked()
    assert await most_seconds_late(tree.supervisor, 600.0) == 5.0
    tree.supervisor.stop()
    await wait_all_tasks_blocked()
    assert await most_seconds_late(tree.supervisor, 85.0) <= 5.0
    await tree.over.wait()


@pytest.mark.parametrize("hangs_at", ["start", "end"])
async def test_heartbeat_of_a_supervisor_stops_while_a_child_hangs(
    a: Child, grow: Grow, autojump_clock: MockClock, hangs_at: str
) -> None:
    release = trio.Event()
    a.before = partial(hang_at_its_end, release, trio.TASK_STATUS_IGNORED)
    spec = a.spec() if hangs_at == "start" else ChildSpec("a", partial(hang_at_its_end, release))
    tree = grow(Supervisor("tree", [spec]))
    await wait_all_tasks_blocked()
    if hangs_at == "end":
        tree.supervisor.stop()
        await wait_all_tasks_blocked()
    assert await most_seconds_late(tree.supervisor, 600.0) > 500.0
    release.set()
    await tree.over.wait()


@pytest.mark.parametrize("how", ["stop", "escalation", "cancelled"])
async def test_wait_ending_returns_when_the_end_begins(
    *, a: Child, b: Child, grow: Grow, autojump_clock: MockClock, how: str
) -> None:
    a.stop_takes = 4.0
    tree = grow(Supervisor("tree", [a.spec(), b.spec()], intensity=Intensity(restarts=0)))
    await trio.sleep(10.0)
    {"stop": tree.supervisor.stop, "escalation": b.fail, "cancelled": tree.scope.cancel}[how]()
    await tree.supervisor.wait_ending()
    assert trio.current_time() == 10.0
    await tree.over.wait()
    assert tree.end_time == (10.0 if how == "cancelled" else 14.0)
