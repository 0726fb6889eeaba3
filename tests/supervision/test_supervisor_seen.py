"""What people and monitors see: the snapshot in each phase, one log record an event, and the loops
that are watched."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.supervision.child import ChildSnapshot, ChildSpec, ChildState
from smartlinkd.supervision.heartbeat import Heartbeat
from smartlinkd.supervision.policy import Backoff, Intensity, Restart
from smartlinkd.supervision.supervisor import Supervisor

if TYPE_CHECKING:
    from tests.supervision.conftest import Child, Grow

EVEN = Backoff(first=2.0, jitter=0.0)
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
LOGGER = "smartlinkd.supervision.supervisor"


def wall() -> datetime:
    """A wall clock that agrees with the mock clock."""
    return at(trio.current_time())


def at(seconds: float) -> datetime:
    return EPOCH + timedelta(seconds=seconds)


async def break_down() -> None:
    raise ValueError("broken")


async def take_three_seconds() -> None:
    await trio.sleep(3)


def test_the_words_of_a_childs_life_are_those_that_monitors_know() -> None:
    words = ["down", "starting", "running", "waiting", "stopping"]
    assert [str(state) for state in ChildState] == words


async def test_a_snapshot_before_the_start_is_all_down(
    a: Child, b: Child, autojump_clock: MockClock
) -> None:
    supervisor = Supervisor("tree", [a.spec(), b.spec()], wall=wall)
    assert supervisor.snapshot() == [
        ChildSnapshot("a", ChildState.DOWN, at(0), 0, None, None),
        ChildSnapshot("b", ChildState.DOWN, at(0), 0, None, None),
    ]


async def test_a_snapshot_tells_each_phase_of_a_childs_life(
    a: Child, b: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    a.before = take_three_seconds
    tree = grow(Supervisor("tree", [a.spec(), b.spec()], backoff=EVEN, wall=wall))
    await trio.sleep(1)
    starting, not_yet = tree.supervisor.snapshot()
    assert starting == ChildSnapshot("a", ChildState.STARTING, at(0), 0, None, None)
    assert not_yet == ChildSnapshot("b", ChildState.DOWN, at(0), 0, None, None)

    await trio.sleep(4)  # now 5.0
    running = tree.supervisor.snapshot()[0]
    assert running == ChildSnapshot("a", ChildState.RUNNING, at(3), 0, None, None)

    a.fail(ValueError("broken"))
    await trio.sleep(0.5)
    waiting = tree.supervisor.snapshot()[0]
    assert waiting == ChildSnapshot("a", ChildState.WAITING, at(5), 0, "ValueError: broken", 1.5)

    await trio.sleep(2.5)  # now 8.0
    again = tree.supervisor.snapshot()[0]
    assert again == ChildSnapshot("a", ChildState.STARTING, at(7), 1, "ValueError: broken", None)

    await trio.sleep(4)  # now 12.0
    a.stop_takes = 2.0
    tree.supervisor.stop()
    await trio.sleep(1)
    stopping = tree.supervisor.snapshot()[0]
    assert stopping == ChildSnapshot(
        "a", ChildState.STOPPING, at(12), 1, "ValueError: broken", None
    )

    await tree.over.wait()
    down, other = tree.supervisor.snapshot()
    assert down == ChildSnapshot("a", ChildState.DOWN, at(14), 1, "ValueError: broken", None)
    assert other == ChildSnapshot("b", ChildState.DOWN, at(12), 0, None, None)


async def test_one_that_is_done_stays_down_since_then(
    a: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    specs = [a.spec(restart=Restart.TRANSIENT)]
    tree = grow(Supervisor("tree", specs, wall=wall))
    await trio.sleep(1)
    a.finish()
    await trio.sleep(9)
    tree.supervisor.stop()
    await tree.over.wait()
    assert tree.supervisor.snapshot() == [ChildSnapshot("a", ChildState.DOWN, at(1), 0, None, None)]


async def test_a_failed_restart_is_the_last_error(
    a: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    tree = grow(Supervisor("tree", [a.spec()], backoff=EVEN, wall=wall))
    await trio.sleep(1)
    a.before = break_down
    a.fail(KeyError("lost"))
    await trio.sleep(2.5)
    assert tree.supervisor.snapshot() == [
        ChildSnapshot("a", ChildState.WAITING, at(3), 1, "ValueError: broken", 3.5)
    ]


async def test_a_restart_that_is_overdue_is_due_in_no_time(
    a: Child, b: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    tree = grow(Supervisor("tree", [a.spec(), b.spec()], backoff=EVEN, wall=wall))
    await trio.sleep(1)
    a.before = take_three_seconds
    a.fail(ValueError("broken"))
    await trio.sleep(0.5)
    b.fail(ValueError("broken"))
    await trio.sleep(3.5)  # at 3.0 a began to start, at 3.5 b was due
    assert tree.supervisor.snapshot()[1].next_retry == 0.0


def test_a_child_has_the_grace_and_the_time_to_start_that_are_promised(a: Child) -> None:
    spec = ChildSpec("a", a.run)
    assert (spec.restart, spec.grace, spec.start_timeout) == (Restart.PERMANENT, 5.0, 30.0)


async def test_nothing_waits_after_the_end(a: Child, grow: Grow, autojump_clock: MockClock) -> None:
    tree = grow(Supervisor("tree", [a.spec()], backoff=EVEN, wall=wall))
    await trio.sleep(1)
    a.fail(ValueError("broken"))
    await trio.sleep(1)
    tree.scope.cancel()
    await tree.over.wait()
    assert tree.supervisor.snapshot() == [
        ChildSnapshot("a", ChildState.DOWN, at(2), 0, "ValueError: broken", None)
    ]


async def test_a_start_that_was_cut_short_is_down_while_the_others_stop(
    a: Child, b: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    tree = grow(Supervisor("tree", [a.spec(), b.spec()], backoff=EVEN, wall=wall))
    await trio.sleep(1)
    a.before = take_three_seconds
    b.stop_takes = 2.0
    a.fail(ValueError("broken"))
    await trio.sleep(3)  # a starts since 3
    tree.supervisor.stop()
    await trio.sleep(1)
    assert tree.supervisor.snapshot() == [
        ChildSnapshot("a", ChildState.DOWN, at(4), 1, "ValueError: broken", None),
        ChildSnapshot("b", ChildState.STOPPING, at(4), 0, None, None),
    ]


async def test_a_start_that_failed_once_too_often_is_down_while_the_others_stop(
    a: Child, b: Child, grow: Grow, autojump_clock: MockClock
) -> None:
    intensity = Intensity(restarts=1)
    specs = [a.spec(), b.spec()]
    tree = grow(Supervisor("tree", specs, backoff=EVEN, intensity=intensity, wall=wall))
    await trio.sleep(1)
    a.before = break_down
    b.stop_takes = 2.0
    a.fail(KeyError("lost"))
    await trio.sleep(3)
    assert tree.supervisor.snapshot() == [
        ChildSnapshot("a", ChildState.DOWN, at(3), 1, "ValueError: broken", None),
        ChildSnapshot("b", ChildState.STOPPING, at(3), 0, None, None),
    ]


def test_the_wall_clock_is_utc_where_none_is_given(a: Child) -> None:
    before = datetime.now(UTC)
    (child,) = Supervisor("tree", [a.spec()]).snapshot()
    assert before <= child.since <= datetime.now(UTC)


def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str, type[BaseException] | None]]:
    return [
        (record.levelno, record.getMessage(), record.exc_info[0] if record.exc_info else None)
        for record in caplog.records
        if record.name == LOGGER
    ]


async def test_a_failure_is_one_record_with_its_traceback(
    a: Child, grow: Grow, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    grow(Supervisor("tree", [a.spec()]))
    await trio.sleep(1)
    a.fail(ValueError("broken"))
    await trio.sleep(5)
    assert logged(caplog) == [(logging.ERROR, "a failed", ValueError)]


@pytest.mark.parametrize(
    ("restart", "message"),
    [
        (Restart.PERMANENT, "a returned; starting it again"),
        (Restart.TRANSIENT, "a returned"),
    ],
)
async def test_a_return_is_one_record(
    *,
    a: Child,
    grow: Grow,
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
    restart: Restart,
    message: str,
) -> None:
    caplog.set_level(logging.DEBUG)
    grow(Supervisor("tree", [a.spec(restart=restart)]))
    await trio.sleep(1)
    a.finish()
    await trio.sleep(5)
    assert logged(caplog) == [(logging.INFO, message, None)]


async def test_a_restart_that_fails_is_one_record(
    a: Child, grow: Grow, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    grow(Supervisor("tree", [a.spec()], backoff=EVEN))
    await trio.sleep(1)
    a.before = break_down
    a.fail(KeyError("lost"))
    await trio.sleep(2.5)
    assert logged(caplog) == [
        (logging.ERROR, "a failed", KeyError),
        (logging.ERROR, "a did not start again", ValueError),
    ]


async def test_an_orderly_life_leaves_no_record(
    a: Child, b: Child, grow: Grow, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    tree = grow(Supervisor("tree", [a.spec(), ChildSpec("b", b.run)]))
    await trio.sleep(1)
    tree.supervisor.stop()
    await tree.over.wait()
    assert logged(caplog) == []


async def test_who_watches_sees_the_loops_themselves(grow: Grow, a: Child) -> None:
    heartbeat = Heartbeat(lambda: None)
    tree = Supervisor("tree", [ChildSpec("a", a.run, stop=a.stop, heartbeats=(heartbeat,))])
    grow(tree)
    await wait_all_tasks_blocked()
    own, child = tree.watched_loops()
    assert "Tree.run" in own.task.name
    assert child.heartbeat is heartbeat
