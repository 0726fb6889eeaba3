"""The supervisor matrix: each way a child may end, in each situation, with all that follows.

Three children run: `a`, `b` and `c`. At second 1 `b` ends: normally, by an error, or by a cancel
scope of its own (a deadline, say), which trio makes a return. At second 10 all is stopped.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.supervision.child import ChildSpec, ChildState
from smartlinkd.supervision.policy import Backoff, Intensity, Strategy
from smartlinkd.supervision.supervisor import Escalated, Supervisor

if TYPE_CHECKING:
    from tests.supervision.conftest import Child, Grow

STOP_ALL = "10 c is asked, 10 c ends, 10 b is asked, 10 b ends, 10 a is asked, 10 a ends"

# By situation and strategy, all events with their seconds.
ROWS: dict[tuple[str, Strategy], str] = {
    ("basic", Strategy.ONE_FOR_ONE): f"1 b ends, 2 b starts, 2 b serves, {STOP_ALL}",
    ("basic", Strategy.REST_FOR_ONE): (
        "1 b ends, 1 c is asked, 1 c ends, 2 b starts, 2 b serves, 2 c starts, 2 c serves, "
        + STOP_ALL
    ),
    # One restart is allowed, and b ends again at 3.
    ("escalation", Strategy.ONE_FOR_ONE): (
        "1 b ends, 2 b starts, 2 b serves, 3 b ends, 3 c is asked, 3 c ends, 3 a is asked, 3 a ends"
    ),
    ("escalation", Strategy.REST_FOR_ONE): (
        "1 b ends, 1 c is asked, 1 c ends, 2 b starts, 2 b serves, 2 c starts, 2 c serves, "
        "3 b ends, 3 c is asked, 3 c ends, 3 a is asked, 3 a ends"
    ),
    # The first start after the end fails.
    ("failed restart", Strategy.ONE_FOR_ONE): (
        f"1 b ends, 2 b starts, 2 b ends, 4 b starts, 4 b serves, {STOP_ALL}"
    ),
    ("failed restart", Strategy.REST_FOR_ONE): (
        "1 b ends, 1 c is asked, 1 c ends, 2 b starts, 2 b ends, "
        f"4 b starts, 4 b serves, 4 c starts, 4 c serves, {STOP_ALL}"
    ),
    # c does not stop when asked, and has a grace of 4 seconds.
    ("hung stop", Strategy.ONE_FOR_ONE): (
        "1 b ends, 2 b starts, 2 b serves, "
        "10 c is asked, 14 c ends, 14 b is asked, 14 b ends, 14 a is asked, 14 a ends"
    ),
    ("hung stop", Strategy.REST_FOR_ONE): (
        "1 b ends, 1 c is asked, 5 c ends, 6 b starts, 6 b serves, 6 c starts, 6 c serves, "
        "10 c is asked, 14 c ends, 14 b is asked, 14 b ends, 14 a is asked, 14 a ends"
    ),
}
ENDS = ("normal", "error", "cancelled")


class Timeline(list[str]):
    """Events, each with its second."""

    def append(self, event: str) -> None:
        super().append(f"{trio.current_time():g} {event}")


@pytest.fixture
def events() -> list[str]:
    return Timeline()


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize(("situation", "strategy"), list(ROWS), ids="-".join)
async def test_supervisor_after_the_end_of_a_child_does_what_the_matrix_says(
    *,
    situation: str,
    strategy: Strategy,
    end: str,
    a: Child,
    b: Child,
    c: Child,
    grow: Grow,
    autojump_clock: MockClock,
) -> None:
    own_scope = trio.CancelScope()

    async def run_b(task_status: trio.TaskStatus[None]) -> None:
        nonlocal own_scope
        with trio.CancelScope() as own_scope:
            await b.run(task_status)

    async def fail_the_second_start() -> None:
        if b.instances == 2:
            raise ValueError("no start")

    def end_b() -> None:
        {"normal": b.finish, "error": b.fail, "cancelled": own_scope.cancel}[end]()

    if situation == "failed restart":
        b.before = fail_the_second_start
    if situation == "hung stop":
        c.stop_takes = inf
    escalates = situation == "escalation"
    tasks_before = trio.lowlevel.current_statistics().tasks_living
    spec = ChildSpec("b", run_b, stop=b.stop)
    tree = grow(
        Supervisor(
            "tree",
            [a.spec(), spec, c.spec(grace=4.0)],
            strategy=strategy,
            backoff=Backoff(first=1.0, jitter=0.0),
            intensity=Intensity(restarts=1 if escalates else 5),
        )
    )
    await trio.sleep_until(1)
    a.events.clear()
    end_b()
    await trio.sleep_until(3)
    if escalates:
        end_b()
    await trio.sleep_until(10)
    tree.supervisor.stop()
    await tree.over.wait()

    assert a.events == ROWS[situation, strategy].split(", ")
    assert type(tree.end) is (Escalated if escalates else type(None))
    assert {child.state for child in tree.supervisor.snapshot()} == {ChildState.DOWN}
    await wait_all_tasks_blocked()
    assert trio.lowlevel.current_statistics().tasks_living == tasks_before
