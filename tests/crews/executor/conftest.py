"""An executor with a journal on a real file, and workers that do as their inputs say."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trio
from pydantic import JsonValue
from trio.testing import wait_all_tasks_blocked

from smartlinkd.crews.catalog.catalog import Catalog
from smartlinkd.crews.executor import Executor
from smartlinkd.crews.model import (
    BrokenCrew,
    Crew,
    CrewLoad,
    CrewUser,
    ExecutorLimits,
    Feedback,
    Kickoff,
)
from smartlinkd.crews.tools import Tool
from smartlinkd.crews.worker import WorkerSettings
from smartlinkd.errors import Invalid, Unavailable
from smartlinkd.store.actor import Store
from smartlinkd.store.model import (
    Execution,
    IdempotencyKey,
    NewEvent,
    Status,
    StoreLimits,
    WebhookTarget,
)
from smartlinkd.supervision.policy import Backoff
from tests.fakes import puppets
from tests.store.calls import make_store

MIB = 2**20
HANG = 20.0  # seconds; what takes that long hangs
WAITS = ("started", "call gate", "echo", "result ok")
"""The script of a worker that ends when the gate is opened."""
Step = str | dict[str, JsonValue]
PUPPET = Path(puppets.__file__).with_name("puppet.py")
"""A real worker, which does the steps of its input `script`."""


def make_crew(name: str = "c", *command: str, **different: object) -> Crew:
    """A crew of puppets, or of what `command` runs; `memory` and `grace` are its workers'."""
    worker: dict[str, Any] = {"memory": 256 * MIB, "grace": 1.0}
    usual: dict[str, Any] = {
        "inputs": (),
        "max_running": 2,
        "queue": 100,
        "deadline": 60.0,
        "human_deadline": 60.0,
        "on_restart": "fail",
        "users": ("an", "bo"),
        "tools": ("gate", "add", "refuse", "bug"),
    }
    for key, value in different.items():
        (worker if key in worker else usual)[key] = value
    puppet = (sys.executable, "-I", "-S", str(PUPPET))
    return Crew(name=name, worker=WorkerSettings(command or puppet, {}, **worker), **usual)


class Gate:
    """A tool that answers when it is opened, and tells of those who wait at it."""

    def __init__(self) -> None:
        self.waiting = 0
        self.most_waiting = 0
        self._opened = trio.Event()
        self._news = trio.Event()

    async def use(self, _crew: str, _arguments: dict[str, JsonValue]) -> JsonValue:
        self.waiting += 1
        self.most_waiting = max(self.waiting, self.most_waiting)
        self._tell()
        try:
            await self._opened.wait()
        finally:
            self.waiting -= 1
            self._tell()
        return "open"

    def open(self) -> None:
        self._opened.set()

    async def reaches(self, waiting: int) -> None:
        """Wait until so many wait at it."""
        with trio.fail_after(HANG):
            while self.waiting != waiting:
                await self._news.wait()

    def _tell(self) -> None:
        self._news.set()
        self._news = trio.Event()


class CrewsDaemon:
    """One daemon's journal and executor. Another one on the same folder is the daemon's next start.

    `calls` counts how often it was said that webhook calls were queued.
    """

    def __init__(
        self,
        folder: Path,
        crews: tuple[Crew, ...],
        broken: tuple[BrokenCrew, ...],
        limits: ExecutorLimits,
        store_limits: StoreLimits | None,
    ) -> None:
        self.folder = folder
        self.gate = Gate()
        self.calls = 0
        self.scope = trio.CancelScope()
        self.ended = trio.Event()
        self.store = make_store(folder / "journal.db", limits=store_limits)
        self.executor = Executor(
            Catalog({crew.name: crew for crew in crews}, broken),
            self.store,
            tools=self._tools(),
            runs=folder / "runs",
            on_calls_queued=self._called,
            limits=limits,
        )

    async def serve(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run both, as `nursery.start` has it, until `stop()` or `kill()`."""
        try:
            with self.scope:
                async with trio.open_nursery() as nursery:
                    await nursery.start(self.store.run)
                    await self.executor.run(task_status)
                    nursery.cancel_scope.cancel()
        finally:
            self.ended.set()

    async def stop(self) -> None:
        """End it in order."""
        self.executor.stop_all()
        await self.ended.wait()

    async def kill(self) -> None:
        """End it in the midst of all."""
        self.scope.cancel()
        await self.ended.wait()

    # What tests ask. `user` "" is the holder of the organization token.

    async def kickoff(
        self,
        *script: Step,
        crew: str = "c",
        user: str = "",
        inputs: dict[str, JsonValue] | None = None,
        meta: JsonValue = None,
        webhooks: tuple[WebhookTarget, ...] = (),
        key: str | None = None,
        body: JsonValue = None,
    ) -> str:
        """Kick off a script, as the API does; without one, a run that is started and done."""
        given = dict(inputs or {}) | ({"script": list(script)} if script else {})
        caller, once = CrewUser(crew, user), None if key is None else IdempotencyKey(key, body)
        earlier = await self.executor.created_by(caller, once)
        return earlier or await self.executor.kickoff(caller, Kickoff(given, meta, webhooks), once)

    async def look(self, kickoff_id: str, crew: str = "c") -> Execution:
        return await self.executor.execution(CrewUser(crew), kickoff_id)

    async def end_of(self, kickoff_id: str, crew: str = "c") -> Execution:
        """The execution when it has ended."""
        with trio.fail_after(HANG):
            while True:
                execution = await self.executor.wait(CrewUser(crew), kickoff_id, HANG)
                if execution.state.ended:
                    return execution

    async def comes_to_rest(self) -> None:
        """Wait until it has nothing in hand: what has ended is told before its worker has gone."""
        with trio.fail_after(HANG):
            while any(load != CrewLoad() for load in self.executor.load().values()):
                await wait_all_tasks_blocked(0.001)

    async def reaches(self, kickoff_id: str, status: Status, crew: str = "c") -> Execution:
        """The execution when it has that status."""
        with trio.fail_after(HANG):
            async with self.executor.follow(CrewUser(crew), kickoff_id, after=0) as following:
                while await following.next():
                    execution = await self.look(kickoff_id, crew)
                    if execution.status is status:
                        return execution
        raise AssertionError(f"it has ended as {execution.status}: {execution.error}")

    async def hears(self, kickoff_id: str, text: str) -> None:
        """Wait until its worker has logged this."""
        with trio.fail_after(HANG):
            async with self.executor.follow(CrewUser("c"), kickoff_id, after=0) as following:
                while text not in str([event.json.decode() for event in await following.next()]):
                    pass

    async def stop_one(self, kickoff_id: str, user: str = "", crew: str = "c") -> None:
        with trio.fail_after(HANG):
            await self.executor.stop(CrewUser(crew, user), kickoff_id)

    async def all_asked(self) -> None:
        """Wait until those who ask for something have come as far as they can."""
        await wait_all_tasks_blocked()
        # Behind their own look, since the journal answers in turn; a list is never in memory.
        await self.executor.executions(CrewUser("c"), state=None, limit=1, cursor=None)
        await wait_all_tasks_blocked()

    async def resume(
        self,
        kickoff_id: str,
        task_id: str = "a",
        text: str = "yes",
        *,
        approved: bool = True,
        user: str = "",
        webhooks: tuple[WebhookTarget, ...] = (),
    ) -> None:
        feedback = Feedback(task_id, text, approved, webhooks)
        with trio.fail_after(HANG):
            await self.executor.resume(CrewUser("c", user), kickoff_id, feedback)

    async def events(self, kickoff_id: str) -> list[NewEvent]:
        """The events as they were recorded."""
        found = await self.store.events(kickoff_id, after=0, limit=500)
        return [
            NewEvent(each.type, each.timestamp, json.loads(each.json or "null")) for each in found
        ]

    async def story(self, kickoff_id: str) -> list[str]:
        """The types of its events."""
        return [event.type for event in await self.events(kickoff_id)]

    async def logs(self, kickoff_id: str) -> list[str]:
        """The texts that its worker has logged."""
        data = [event.data for event in await self.events(kickoff_id) if event.type == "log"]
        return [str(each["text"]) for each in data if isinstance(each, dict)]

    def owed(self) -> list[tuple[str, str, Any]]:
        """The webhook calls that wait: kind of the target, its url, body."""
        with closing(sqlite3.connect(self.folder / "journal.db")) as other_program:
            rows = other_program.execute(
                "SELECT kind, url, body FROM deliveries "
                "JOIN webhooks ON webhooks.number = webhook ORDER BY deliveries.number"
            ).fetchall()
        return [(kind, url, json.loads(body)) for kind, url, body in rows]

    def _called(self) -> None:
        self.calls += 1

    def _tools(self) -> dict[str, Tool]:
        async def add(_crew: str, arguments: dict[str, JsonValue]) -> JsonValue:
            return {"sum": sum(arguments.values())}  # type: ignore[arg-type]

        async def refuse(_crew: str, arguments: dict[str, JsonValue]) -> JsonValue:
            if arguments:
                raise Unavailable("too many links wait; try again shortly", retry_after=5)
            raise Invalid("links: there are none; give one")

        async def bug(_crew: str, arguments: dict[str, JsonValue]) -> JsonValue:
            raise ZeroDivisionError("a secret of the daemon's")

        return {"gate": self.gate.use, "add": add, "refuse": refuse, "bug": bug}


StartDaemon = Callable[..., Awaitable[CrewsDaemon]]


@pytest.fixture
def limits() -> dict[str, Any]:
    """The limits of executors that are made from now on, where they are not the usual ones."""
    return {}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A state directory. No worker's folder may be left in it."""
    yield tmp_path
    runs = tmp_path / "runs"
    assert not runs.exists() or list(runs.iterdir()) == []


@pytest.fixture
def start_daemon(
    nothing_left: None, folder: Path, limits: dict[str, Any], nursery: trio.Nursery
) -> StartDaemon:
    """Starts a daemon with these crews; it is killed with the test, if it has not ended by then."""

    async def start(
        *crews: Crew,
        broken: tuple[BrokenCrew, ...] = (),
        store_limits: StoreLimits | None = None,
    ) -> CrewsDaemon:
        of_executor = ExecutorLimits(**limits)
        daemon = CrewsDaemon(folder, crews or (make_crew(),), broken, of_executor, store_limits)
        await nursery.start(daemon.serve)
        return daemon

    return start


@pytest.fixture
async def daemon(start_daemon: StartDaemon) -> CrewsDaemon:
    """A daemon with one crew "c", whose workers are puppets."""
    return await start_daemon()


class Disk:
    """Refuses records as long as it is `refusing`, or a certain one; never a new execution."""

    def __init__(self) -> None:
        self.refusing = False
        self.refused = 0
        self._records = 0
        self._at = 0
        self._times = 0

    def refuses_record(self, *, number: int, times: int) -> None:
        """Refuse the record with this number, counted from now on, so many times."""
        self._records, self._at, self._times = 0, number, times

    async def has_refused(self, times: int) -> None:
        """Wait until it has refused so many times in all."""
        with trio.fail_after(HANG):
            while self.refused < times:  # noqa: ASYNC110 - a thread of the journal's counts
                await trio.sleep(0.002)

    def record(self) -> None:
        """Something is to be recorded."""
        if self.refusing or (self._records + 1 == self._at and self._times > 0):
            self._times -= 1
            self._refuse()
        self._records += 1

    def _refuse(self) -> None:
        self.refused += 1
        raise Unavailable("its disk is full", retry_after=5)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch, limits: dict[str, Any]) -> Disk:
    """The disk under the journal. Between two tries of the executor's there is no long pause."""
    disk = Disk()
    record = Store.record

    async def try_to_record(self: Store, *args: Any) -> None:
        disk.record()
        await record(self, *args)

    monkeypatch.setattr(Store, "record", try_to_record)
    limits["backoff"] = Backoff(first=0.01, longest=0.01)
    return disk
