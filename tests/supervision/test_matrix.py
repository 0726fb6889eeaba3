"""The supervisor matrix: each way a child may end, in each situation, with all that follows.

A cell is one kind of child (an actor, or a supervisor with an actor under it) x permanent,
transient or temporary x a normal, an erroneous or a cancelled end x a strategy x a situation. In
every cell three children run: `a`, then `b`, which is the cell's, then `c`. At second 1 `b` ends,
and matrix.toml says what has to happen then, and when. The kind of child changes only the words
of an error, and what becomes of questions while `b` is down: those to an actor wait for its next
instance, while a supervisor that ends closes its children's mailboxes.

A cancelled end is one by a cancel scope of the child's own, a deadline say, which trio makes a
return. A cancellation from outside is no end of a child's: only its supervisor cancels it, when
it stops it, or is cancelled itself; see test_supervisor_stop.py.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import product
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.supervision.actor import ActorGone, Mailbox
from smartlinkd.supervision.child import ChildSnapshot, ChildSpec, ChildState
from smartlinkd.supervision.policy import Backoff, Intensity, Restart, Strategy
from smartlinkd.supervision.supervisor import Escalated, Supervisor

if TYPE_CHECKING:
    from tests.supervision.conftest import Child, Grow

EVEN = Backoff(first=1.0, longest=8.0, healthy=60.0, jitter=0.0)
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
GRACE = 4.0
FIRST_END, ASKED_AT, SECOND_END = 1, 1.5, 3  # the second one only where it is too many
STOPPED_AT = 10.0  # all of it, in every cell that has not ended by then
STOPPING = "the daemon, or this part of it, is stopping"


class Kind(StrEnum):
    ACTOR = "actor"
    SUPERVISOR = "supervisor"


class End(StrEnum):
    NORMAL = "normal"
    ERROR = "error"
    CANCELLED = "cancelled"


class Situation(StrEnum):
    BASIC = "basic"
    ESCALATION = "escalation"
    FAILED_RESTART = "failed-restart"
    HUNG_STOP = "hung-stop"


class Cell(NamedTuple):
    kind: Kind
    restart: Restart
    end: End
    strategy: Strategy
    situation: Situation

    @property
    def comes_back(self) -> bool:
        return (self.restart, self.end) in COMES_BACK

    @property
    def row(self) -> Key:
        """Where the cell is in `ROWS`: without a restart the strategy makes no difference."""
        return self.situation, self.strategy if self.comes_back else None


@dataclass(frozen=True)
class Row:
    """What has to be seen in a cell; matrix.toml says what the words mean."""

    happens: list[str]
    looks: dict[float, list[str]]
    answers: dict[str, float]
    restarts_allowed: int = 5
    escalates: bool = False


Key = tuple[Situation, Strategy | None]


def read_rows() -> tuple[dict[Key, Row], dict[Key, str]]:
    """What has to happen in the cells that can be, and why the others cannot be."""
    rows: dict[Key, Row] = {}
    impossible: dict[Key, str] = {}
    text = Path(__file__).with_name("matrix.toml").read_text()
    for row in tomllib.loads(text)["row"]:
        strategy = Strategy(row.pop("strategy")) if "strategy" in row else None
        key = Situation(row.pop("situation")), strategy
        assert key not in rows.keys() | impossible.keys()
        if "impossible" in row:
            impossible[key] = row["impossible"]
        else:
            looks = {float(at): look for at, look in row.pop("looks").items()}
            rows[key] = Row(looks=looks, **row)
    return rows, impossible


COMES_BACK = {
    (Restart.PERMANENT, End.NORMAL),
    (Restart.PERMANENT, End.ERROR),
    (Restart.PERMANENT, End.CANCELLED),
    (Restart.TRANSIENT, End.ERROR),
}

ROWS, IMPOSSIBLE = read_rows()
ALL = [Cell(*values) for values in product(Kind, Restart, End, Strategy, Situation)]
COVERED = [cell for cell in ALL if cell.row in ROWS]


class Timeline(list[str]):
    """Events, each with the second at which it happened."""

    def append(self, event: str) -> None:
        super().append(f"{trio.current_time():g} {event}")


@pytest.fixture
def events() -> list[str]:
    return Timeline()


class Part:
    """A child of the test's, with a mailbox that is answered while it serves."""

    def __init__(self, child: Child) -> None:
        self.child = child
        self.mailbox = Mailbox[None](child.name, size=8)
        self._scope = trio.CancelScope()

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery() as nursery:
            self._scope = nursery.cancel_scope
            await nursery.start(self._live)
            nursery.start_soon(self.mailbox.serve, None)
            task_status.started()

    async def _live(self, task_status: trio.TaskStatus[None]) -> None:
        await self.child.run(task_status)
        self._scope.cancel()

    def end(self, how: End) -> None:
        ways: dict[End, Callable[[], None]] = {
            End.NORMAL: self.child.finish,
            End.ERROR: lambda: self.child.fail(ValueError("broken")),
            End.CANCELLED: self._scope.cancel,
        }
        ways[how]()

    def spec(self, restart: Restart = Restart.PERMANENT, *, grace: float = GRACE) -> ChildSpec:
        return ChildSpec(
            self.child.name,
            self.run,
            restart=restart,
            stop=self.child.stop,
            grace=grace,
            mailbox=self.mailbox,
        )


class Nested:
    """A supervisor in the place of a part: over that part, and of its name.

    The part has more grace than its supervisor, which is the one that is given up on.
    """

    def __init__(self, part: Part) -> None:
        self._part = part
        self._supervisor = Supervisor(
            part.child.name, [part.spec(grace=3 * GRACE)], intensity=Intensity(restarts=0)
        )
        self._scope = trio.CancelScope()

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        with trio.CancelScope() as self._scope:
            await self._supervisor.run(task_status)

    def end(self, how: End) -> None:
        ways: dict[End, Callable[[], None]] = {
            End.NORMAL: self._supervisor.stop,
            End.ERROR: lambda: self._part.end(End.ERROR),
            End.CANCELLED: self._scope.cancel,
        }
        ways[how]()

    def spec(self, restart: Restart) -> ChildSpec:
        name, stop = self._part.child.name, self._supervisor.stop
        return ChildSpec(name, self.run, restart=restart, stop=stop, grace=GRACE)


def expected_events(cell: Cell) -> list[str]:
    """The row's; a supervisor that is told to end asks its child."""
    asks = cell.kind is Kind.SUPERVISOR and cell.end is End.NORMAL
    expected: list[str] = []
    for event in ROWS[cell.row].happens:
        at, _, what = event.partition(" ")
        if what != "b exits":
            expected.append(event)
        else:
            expected += [f"{at} b is asked"] * asks + [f"{at} b ends"]
    return expected


def settled(cell: Cell, events: list[str]) -> list[str]:
    """The events, without what the scheduler's dice decide.

    A supervisor that is cancelled may still come to ask its child, which is cancelled as well.
    """
    if (cell.kind, cell.end) != (Kind.SUPERVISOR, End.CANCELLED):
        return events
    by_chance = {f"{at} b is asked" for at in (FIRST_END, SECOND_END)}
    return [event for event in events if event not in by_chance]


def expected_look(cell: Cell, look: list[str]) -> list[str]:
    error, no_start = "ValueError: broken", "ValueError: no start"
    if cell.kind is Kind.SUPERVISOR:
        error = f"Escalated: b needed more than 0 restarts in 60 s; its last error: {error}"
        no_start = f"Escalated: b did not start: {no_start}"
    shown = f", {error}" if cell.end is End.ERROR else ""
    return [line.format(error=shown, no_start=f", {no_start}") for line in look]


def expected_answers(cell: Cell) -> dict[str, float | str]:
    """To what is asked at 1.5, while `b` is down."""
    expected: dict[str, float | str] = {}
    for name in "abc":
        at = ROWS[cell.row].answers.get(name)
        if name == "b" and cell.kind is Kind.SUPERVISOR:
            expected[name] = STOPPING
        elif at is None:
            expected[name] = "it failed" if cell.end is End.ERROR else "it has done its work"
        else:
            expected[name] = at
    return expected


def seen(snapshot: list[ChildSnapshot]) -> list[str]:
    def line(child: ChildSnapshot) -> str:
        facts = [f"{child.name} {child.state} since {(child.since - EPOCH).total_seconds():g}"]
        facts += [f"restarts {child.restarts}"] if child.restarts else []
        facts += [] if child.next_retry is None else [f"next in {child.next_retry:g}"]
        facts += [child.last_error] if child.last_error else []
        return ", ".join(facts)

    return [line(child) for child in snapshot]


async def ask(part: Part, answers: dict[str, float | str]) -> None:
    """Note when the part answered, or why nobody does."""
    try:
        await part.mailbox.ask(do_nothing)
        answers[part.child.name] = trio.current_time()
    except ActorGone as gone:
        answers[part.child.name] = str(gone).partition("has ended: ")[2]


async def do_nothing(state: None) -> None:
    pass


def fail_the_second_start(child: Child) -> None:
    async def before() -> None:
        if child.instances == 2:
            raise ValueError("no start")

    child.before = before


def supervisor_over(first: Part, subject: Part | Nested, last: Part, cell: Cell) -> Supervisor:
    return Supervisor(
        "tree",
        [first.spec(), subject.spec(cell.restart), last.spec()],
        strategy=cell.strategy,
        backoff=EVEN,
        intensity=Intensity(restarts=ROWS[cell.row].restarts_allowed),
        wall=lambda: EPOCH + timedelta(seconds=trio.current_time()),
    )


async def end_it(subject: Part | Nested, cell: Cell) -> None:
    await trio.sleep_until(FIRST_END)
    subject.end(cell.end)
    if ROWS[cell.row].escalates:
        await trio.sleep_until(SECOND_END)
        subject.end(cell.end)


@pytest.mark.parametrize("cell", COVERED, ids="-".join)
async def test_cell(
    *,
    cell: Cell,
    a: Child,
    b: Child,
    c: Child,
    nursery: trio.Nursery,
    grow: Grow,
    autojump_clock: MockClock,
    record_property: Callable[[str, object], None],
) -> None:
    row = ROWS[cell.row]
    parts = [Part(child) for child in (a, b, c)]
    subject = Nested(parts[1]) if cell.kind is Kind.SUPERVISOR else parts[1]
    tree = supervisor_over(parts[0], subject, parts[2], cell)
    if cell.situation is Situation.FAILED_RESTART:
        fail_the_second_start(b)
    if cell.situation is Situation.HUNG_STOP:
        c.stop_takes = inf
    tasks_before = trio.lowlevel.current_statistics().tasks_living
    running = grow(tree)
    nursery.start_soon(end_it, subject, cell)
    await trio.sleep_until(FIRST_END - 0.5)
    a.events.clear()  # how it starts is no cell's matter

    answers: dict[str, float | str] = {}
    for at, look in row.looks.items():
        await trio.sleep_until(at)
        await wait_all_tasks_blocked()
        assert seen(tree.snapshot()) == expected_look(cell, look)
        if at == ASKED_AT:
            for part in parts:
                nursery.start_soon(ask, part, answers)
    await trio.sleep_until(STOPPED_AT)
    assert answers == expected_answers(cell)
    if not row.escalates:
        assert running.up
        assert not running.over.is_set()
        await check_who_answers(parts, tree)
        if cell.situation is Situation.HUNG_STOP:
            b.stop_takes = inf
        tree.stop()

    await running.over.wait()
    assert settled(cell, a.events) == expected_events(cell)
    assert running.end_time == float(a.events[-1].partition(" ")[0])
    assert type(running.end) is (Escalated if row.escalates else type(None))
    if row.escalates:
        assert str(running.end).startswith("b needed more than 1 restarts in 60 s; its last error")
    assert [child.alive for child in (a, b, c)] == [0, 0, 0]
    await check_that_all_is_over(parts, tree)
    await wait_all_tasks_blocked()
    assert trio.lowlevel.current_statistics().tasks_living == tasks_before
    record_property("supervisor cell", " x ".join(cell))


async def check_that_all_is_over(parts: list[Part], tree: Supervisor) -> None:
    assert [line.split()[:2] for line in seen(tree.snapshot())] == [[x, "down"] for x in "abc"]
    assert [child.next_retry for child in tree.snapshot()] == [None] * 3
    answers: dict[str, float | str] = {}
    for part in parts:
        await ask(part, answers)
    assert answers == dict.fromkeys("abc", STOPPING)


async def check_who_answers(parts: list[Part], tree: Supervisor) -> None:
    """Those that run answer at once, and the others are closed."""
    answers: dict[str, float | str] = {}
    for part in parts:
        await ask(part, answers)
    for child in tree.snapshot():
        assert (answers[child.name] == STOPPED_AT) is (child.state is ChildState.RUNNING)


def test_every_cell_is_covered_or_has_its_reason(
    record_property: Callable[[str, object], None],
) -> None:
    impossible = {cell: IMPOSSIBLE[cell.row] for cell in ALL if cell.row in IMPOSSIBLE}
    assert len(ALL) == len(set(ALL)) == 2 * 3 * 3 * 2 * 4
    assert set(COVERED).isdisjoint(impossible)
    assert set(COVERED) | set(impossible) == set(ALL)
    possible = len(ALL) - len(impossible)
    assert (len(COVERED), possible) == (124, 124)
    record_property("supervisor cells", possible)
    print(f"supervisor matrix: {len(COVERED)} of {possible} possible cells are covered")
    for reason, count in Counter(impossible.values()).items():
        print(f"supervisor matrix: {count} cells are impossible: {reason}")
