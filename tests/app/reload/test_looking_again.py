"""A crew that could not run when it was looked at is looked at again, without a SIGHUP."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.app import reload
from smartlinkd.app.reload import LOOK_AGAIN_AFTER
from smartlinkd.crews.catalog import checks
from tests.app.reload.played import DONE, PATIENCE, WAIT, Daemon, crew, running
from tests.shortage import Shortage


@pytest.fixture
def clock(mock_clock: MockClock) -> MockClock:
    """One as any other, of which a minute can be skipped."""
    mock_clock.rate = 1.0
    return mock_clock


async def a_minute_passes(clock: MockClock) -> None:
    """The time until the next look."""
    await wait_all_tasks_blocked()  # whoever looks waits for it by now
    clock.jump(LOOK_AGAIN_AFTER)
    await wait_all_tasks_blocked()  # connections that were idle for so long are closed by now


class Program:
    """What a crew's command names; it comes and goes."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def put(self) -> None:
        self.path.write_text(f"#!/bin/sh\n{DONE}\n")
        self.path.chmod(0o755)

    def crew(self, name: str = "one") -> dict[str, object]:
        return {**crew(name), "command": [str(self.path)]}


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path / "program")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A CrewAI project."""
    config = tmp_path / "project" / "src" / "news" / "config"
    config.mkdir(parents=True)
    (config.parent / "crew.py").touch()
    (config / "tasks.yaml").write_text("find:\n  description: Find {topic}\n")
    return tmp_path / "project"


class Python:
    """An interpreter with CrewAI, of which the first run does as it is told."""

    def __init__(self, folder: Path, first: str) -> None:
        self.asked = folder / "asked"
        self.path = folder / "python"
        self.path.write_text(
            f"#!/bin/sh\nif ! [ -e {self.asked} ]; then touch {self.asked}; {first}; fi\n"
            "echo 'smartlinkd: crewai is here'\n"
        )
        self.path.chmod(0o755)

    def crew(self, project: Path) -> dict[str, object]:
        return {
            "name": "news",
            "runner": "crewai",
            "project": str(project),
            "python": str(self.path),
        }


async def status_of(daemon: Daemon, name: str) -> int:
    return (await daemon.get(f"/crews/{name}/inputs", await daemon.token(name))).status_code


async def is_served(daemon: Daemon, name: str) -> None:
    with trio.fail_after(PATIENCE):
        while await status_of(daemon, name) != 200:  # noqa: ASYNC110 - an answer is all there is
            await trio.sleep(0.01)


async def test_a_program_that_was_missing_is_found_and_runs_what_waited(
    daemon: Daemon, program: Program, clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    before = Daemon(daemon.folder, caplog)
    before.write(crew("one", WAIT, max_running=1))
    async with running(before):
        await before.kickoff("one")
        token, waiting = await before.kickoff("one")
    daemon.write(program.crew())
    async with running(daemon):
        program.put()
        assert await status_of(daemon, "one") == 503
        await a_minute_passes(clock)
        assert (await daemon.end_of("one", token, waiting))["result"] == "done"
        await is_served(daemon, "one")


async def test_a_file_of_variables_that_was_missing_is_read_when_it_is_there(
    daemon: Daemon, clock: MockClock
) -> None:
    variables = daemon.folder / "crew.env"
    tells = """printf '{"type":"started"}\n{"type":"result","output":"%s"}\n' "$MODEL" >&3"""
    daemon.write(crew("one", tells, environment_file=str(variables)))
    async with running(daemon):
        session = (await daemon.login()).json()["token"]
        assert "does not exist" in (await daemon.get("/api/crews", session)).text
        variables.write_text("nonsense")
        await a_minute_passes(clock)
        await daemon.hears("line 1 is no NAME=VALUE")
        variables.write_text("MODEL=small\n")
        await a_minute_passes(clock)
        await is_served(daemon, "one")
        assert (await daemon.end_of("one", *await daemon.kickoff("one")))["result"] == "small"


async def test_nor_is_one_that_does_not_go_with_its_table_or_its_program_the_last_word(
    daemon: Daemon, clock: MockClock
) -> None:
    variables = daemon.folder / "crew.env"
    variables.write_text("MODEL=small\nPATH=/nowhere\n")
    table = crew("one", environment_file=str(variables), environment={"MODEL": "large"})
    daemon.write({**table, "command": ["sh", "-c", DONE]})
    async with running(daemon):
        session = (await daemon.login()).json()["token"]
        assert "stands in environment_file, too" in (await daemon.get("/api/crews", session)).text
        variables.write_text("PATH=/nowhere\n")
        await a_minute_passes(clock)
        await daemon.hears("is not on the worker's PATH")
        variables.write_text("PATH=/usr/bin:/bin\n")
        await a_minute_passes(clock)
        await is_served(daemon, "one")


async def test_an_interpreter_that_hung_once_is_asked_again(
    daemon: Daemon,
    project: Path,
    clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    python = Python(daemon.folder, first="sleep 100")
    monkeypatch.setattr(checks, "PROBE_LIMIT", 2.0)  # its start is in it
    daemon.write(python.crew(project))
    async with running(daemon):
        assert "did not come to an end within 2 s" in caplog.text
        assert await status_of(daemon, "news") == 503
        await a_minute_passes(clock)
        await is_served(daemon, "news")
        await daemon.hears("crews that could not run can run now: news")


async def test_what_is_still_wrong_is_not_told_anew_and_is_looked_at_on(
    daemon: Daemon,
    program: Program,
    clock: MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    late = Program(daemon.folder / "late")
    daemon.write(program.crew(), late.crew("two"))
    async with running(daemon):
        program.put()
        await a_minute_passes(clock)
        await is_served(daemon, "one")
        late.put()
        await a_minute_passes(clock)
        await is_served(daemon, "two")
    assert caplog.text.count("a crew cannot run: ") == 2  # at the start, one for each


async def test_what_is_wrong_by_now_is_shown_and_told_once(
    daemon: Daemon, program: Program, clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    fault = "may not execute"
    other = Program(daemon.folder / "other")
    daemon.write(program.crew(), other.crew("two"))
    async with running(daemon):
        session = (await daemon.login()).json()["token"]
        assert fault not in (await daemon.get("/api/crews", session)).text
        program.put()
        program.path.chmod(0o644)
        await a_minute_passes(clock)
        await daemon.hears(fault)
        assert fault in (await daemon.get("/api/crews", session)).text
        other.put()
        await a_minute_passes(clock)
        await is_served(daemon, "two")
    assert caplog.text.count(fault) == 1
    assert caplog.text.count("a crew cannot run: ") == 3
    assert caplog.text.count("can run now: ") == 1


async def test_of_the_crews_that_run_and_of_the_file_nothing_is_taken_up(
    daemon: Daemon, program: Program, clock: MockClock
) -> None:
    runs = Program(daemon.folder / "runs")
    runs.put()
    daemon.write(program.crew(), runs.crew("two"))
    async with running(daemon):
        daemon.write(program.crew(), cookie={"open_to": []})
        runs.path.unlink()
        program.put()
        await a_minute_passes(clock)
        await is_served(daemon, "one")
        assert await status_of(daemon, "two") == 200
        assert (await daemon.get("/api/sync-cookie")).status_code == 200


async def test_no_look_is_due_for_a_crew_whose_table_has_to_be_edited(
    daemon: Daemon, clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[object] = []
    monkeypatch.setattr(reload, "read_catalog", lambda *given: looks.append(given))
    daemon.write(crew("one", tools=["none"]))
    async with running(daemon):
        await a_minute_passes(clock)
        daemon.write(crew("one"))
        await daemon.hang_up()  # a look that has begun is over before that begins
        await is_served(daemon, "one")
    assert looks == []


async def test_a_reload_cuts_a_look_short(
    daemon: Daemon,
    project: Path,
    clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = Python(daemon.folder, first="exit 1")
    daemon.write(first.crew(project))
    async with running(daemon):
        monkeypatch.setattr(checks, "PROBE_LIMIT", 1000.0)
        hangs = Python(daemon.folder, first="sleep 1000")
        hangs.asked.unlink()
        await a_minute_passes(clock)
        with trio.fail_after(PATIENCE):
            while not hangs.asked.exists():  # noqa: ASYNC110 - another process tells nobody
                await trio.sleep(0.01)
        daemon.write(crew("two"))
        assert "is reloaded: crews" in await daemon.hang_up()
        assert await status_of(daemon, "two") == 200


async def test_with_no_thread_to_look_by_it_is_the_next_look_that_finds_it(
    daemon: Daemon,
    program: Program,
    clock: MockClock,
    no_thread: Shortage,
    caplog: pytest.LogCaptureFixture,
) -> None:
    daemon.write(program.crew())
    async with running(daemon):
        program.put()
        with no_thread():
            await a_minute_passes(clock)
            await daemon.hears("no thread can be started")
        assert await status_of(daemon, "one") == 503
        await a_minute_passes(clock)
        await is_served(daemon, "one")
    assert [each.levelname for each in caplog.records].count("ERROR") == 1  # at the start
