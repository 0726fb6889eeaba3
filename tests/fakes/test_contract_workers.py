"""Contract of the fake and real workers: the execution's outcome, and nothing left behind.

`puppets.py` runs each script in a fake process on a mock clock, `puppet.py` in a real process. The
executor and the store are the daemon's.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from smartlinkd.crews.model import Crew, ExecutorLimits
from smartlinkd.store.model import Status
from tests.crews.executor.conftest import CrewsDaemon, make_crew
from tests.fakes.disk import Disk
from tests.fakes.puppets import Step
from tests.fakes.threads import threads_in_place
from tests.fakes.workers import Workers
from tests.hygiene.at_once import check_unchanged, open_resources

SOON = 20.0  # seconds
SHORT = 1.5
"""Seconds within which a process starts, even on a busy machine."""
GRACE = 1.5  # seconds
BEGUN, DONE, FAILED = "crew_kickoff_started", "crew_kickoff_completed", "crew_kickoff_failed"


@dataclass(frozen=True)
class Outcome:
    """An execution's end, and the types of its events."""

    status: str
    error: str
    result: str | None
    events: list[str]


async def outcome_of(daemon: CrewsDaemon, kickoff_id: str) -> Outcome:
    """Wait for the execution's end and return it."""
    found = await daemon.end_of(kickoff_id)
    types: list[str] = []
    while page := await daemon.store.events(kickoff_id, after=len(types), limit=500):
        types += [each.type for each in page]
    error = re.sub(r"used [0-9.]+ MiB", "used MANY MiB", found.error or "")
    return Outcome(found.status.value, error, found.result, types)


class ScriptRunner:
    """Runs scripts on fake or real workers, and checks that nothing is left of them."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, *, is_fake: bool) -> None:
        self.program = folder / "program"
        self._folder = folder
        self._patch = patch
        self._is_fake = is_fake
        self._workers = Workers(folder)

    def __call__(self, *script: Step, **crew_options: Any) -> Outcome:
        """Run the script as an execution and return its outcome."""

        async def run(daemon: CrewsDaemon) -> Outcome:
            return await outcome_of(daemon, await daemon.kickoff(*script))

        outcome: Outcome = self.play(run, **crew_options)
        return outcome

    def play(
        self,
        scenario: Callable[[CrewsDaemon], Awaitable[Any]],
        *,
        command: tuple[str, ...] = (),
        deadline: float = SOON,
    ) -> Any:
        """Run the scenario, kill the daemon, and return the scenario's result."""
        if self._is_fake and not command:
            command = (str(self._workers.program),)
        crew = make_crew("c", *command, grace=GRACE, deadline=deadline)
        crew = replace(crew, worker=replace(crew.worker, max_output=200_000))
        before = open_resources()
        with self._patch.context() as patch:
            clock = None
            if self._is_fake:
                threads_in_place(patch)
                self._workers.install(patch)
                Disk().install(patch)
                clock = MockClock(autojump_threshold=0)
            found = trio.run(self._play, scenario, crew, clock=clock)
        assert self._workers.count() == 0
        check_unchanged(before)
        assert list((self._folder / "runs").iterdir()) == []
        return found

    async def _play(self, scenario: Callable[[CrewsDaemon], Awaitable[Any]], crew: Crew) -> Any:
        async with trio.open_nursery() as world:
            self._workers.nursery = world
            daemon = CrewsDaemon(self._folder, (crew,), (), ExecutorLimits(), None)
            await world.start(daemon.serve)
            found = await scenario(daemon)
            await daemon.kill()
            with trio.move_on_after(SOON):
                while self._workers.count():  # noqa: ASYNC110 - no event is set
                    await trio.sleep(0.01)
            world.cancel_scope.cancel()
        return found


@pytest.fixture(params=["fake", "real"])
def runner(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> ScriptRunner:
    return ScriptRunner(tmp_path, monkeypatch, is_fake=request.param == "fake")


def error(text: str, *events: str, status: str = "error") -> Outcome:
    return Outcome(status, text, None, [BEGUN, *events, FAILED])


def test_worker_completes(runner: ScriptRunner) -> None:
    done = runner("started", "task a", "note x", "log y", "done a", "result fine")
    told = ["task_started", "agent_step", "log", "task_completed"]
    assert done == Outcome("completed", "", "fine", [BEGUN, *told, DONE])


def test_worker_calls_tool(runner: ScriptRunner) -> None:
    done = runner("started", "call add", "hear", "result used")
    told = ["tool_usage_started", "tool_usage_finished"]
    assert done == Outcome("completed", "", "used", [BEGUN, *told, DONE])


def test_worker_asks_for_human_input(runner: ScriptRunner) -> None:
    async def answer(daemon: CrewsDaemon) -> Outcome:
        kickoff_id = await daemon.kickoff(
            *("started", "task a", "ask a", "hear", "done a", "result good")
        )
        await daemon.reaches(kickoff_id, Status.WAITING_FOR_HUMAN_INPUT)
        await daemon.resume(kickoff_id)
        return await outcome_of(daemon, kickoff_id)

    told = ["task_started", "human_input_requested", "human_feedback_received", "task_completed"]
    assert runner.play(answer) == Outcome("completed", "", "good", [BEGUN, *told, DONE])


@pytest.mark.parametrize(
    ("script", "text"),
    [
        (["failed no idea"], "no idea"),
        (["words x", "words  last\twords ", "exit 3"],
         "the worker exited with code 3 without a result; its last words: last\\twords"),
        (["exit 0"], "the worker exited with code 0 without a result"),
        ([], "the worker exited with code 0 without a result"),
        (["signal 11"], "the worker was ended by signal 11 (Segmentation fault)"),
        (["raw no JSON"],
         "the worker broke the protocol: a line is not valid JSON: expected ident at line 1 column "
         "2. It sent: no JSON"),
        (["done b"],
         "the worker broke the protocol: `task_completed` of a task that is not open. It sent: "
         '{"type": "task_completed", "task_id": "b", "output": "output of b"}'),
        (['part {"type', "exit 0"],
         "the worker broke the protocol: its last line has no newline. It sent: {\"type"),
        (["close", "hang"],
         "the worker broke the protocol: it closed its descriptor without `result` or `failed` and "
         "runs on"),
        (["fill"],
         "the worker was ended because it used MANY MiB of memory, and its crew may use 256.0 MiB "
         "(memory)"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)  # fmt: skip
def test_end_of_worker_is_reported(runner: ScriptRunner, script: list[Step], text: str) -> None:
    assert runner("started", *script) == error(text)


def test_result_stands_despite_later_messages(runner: ScriptRunner) -> None:
    expected = Outcome("completed", "", "x", [BEGUN, DONE])
    assert runner("started", "result x", "result y", "raw no JSON", "exit 3") == expected


def test_killed_worker_is_reported(runner: ScriptRunner) -> None:
    killed = runner("started", "signal 9")
    assert killed.status == "error"
    assert killed.error.startswith("the worker was ended by signal 9 (Killed), which this daemon")


def test_flood_of_messages_is_refused(runner: ScriptRunner) -> None:
    flooded = runner("started", "flood 9", "result x")
    assert flooded.error.startswith(
        "the worker broke the protocol: an execution's messages may have 200000 bytes in all"
    )
    assert flooded.events == [BEGUN, "log", "log", "log", FAILED]


def test_endless_line_is_refused(runner: ScriptRunner) -> None:
    endless = runner("started", "endless", "result x")
    assert endless.error.startswith(
        "the worker broke the protocol: a line may have 1048576 bytes, this has more"
    )


def test_flood_of_output_is_ignored(runner: ScriptRunner) -> None:
    assert runner("started", "print 300000", "result x").status == "completed"


LATE = f"it ran longer than the {SHORT:g} s that its crew may (deadline); "


@pytest.mark.parametrize(
    ("script", "how"),
    [
        (["hear"], "the worker ended without a signal"),
        (["hang"], "the worker ended at SIGTERM"),
        (["deaf", "hang"], "the worker ignored the message `stop` and SIGTERM, and was killed"),
        (["signal 19"], "the worker ignored the message `stop` and SIGTERM, and was killed"),
        (["fork", "hang"], "the worker ended at SIGTERM"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_stop_escalates_as_needed(runner: ScriptRunner, script: list[Step], how: str) -> None:
    late = runner("started", *script, deadline=SHORT)
    assert late == error(LATE + how, status="timed_out")


@pytest.mark.parametrize("end", ["result x", "exit 3", "signal 9"])
def test_children_of_worker_are_ended(runner: ScriptRunner, end: str) -> None:
    """`ScriptRunner` checks processes, folders and descriptors."""
    left = runner("started", "fork", "stray", end)
    assert left.status == ("completed" if end == "result x" else "error")


def test_killed_daemon_leaves_no_worker(runner: ScriptRunner) -> None:
    async def leave(daemon: CrewsDaemon) -> None:
        kickoff_id = await daemon.kickoff("started", "deaf", "fork", "stray", "log x", "hang")
        await daemon.hears(kickoff_id, "x")

    runner.play(leave)


@pytest.mark.parametrize(
    ("mode", "why"), [(None, "No such file or directory"), (0o644, "Permission denied")]
)
def test_worker_that_cannot_start_is_reported(
    runner: ScriptRunner, mode: int | None, why: str
) -> None:
    if mode is not None:
        runner.program.write_text("#!/bin/sh\n")
        runner.program.chmod(mode)
    failed = runner(command=(str(runner.program),))
    assert failed.events == [BEGUN, FAILED]
    assert re.fullmatch(f".*program: .Errno .*. {why}: 'program'", failed.error)
