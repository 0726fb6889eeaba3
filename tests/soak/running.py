"""A soak from its start to its last sample.

Jobs are done in rounds. A round has as many jobs as its seconds and the machine allow, at a bounded
rate; then nothing new is begun, what is under way ends, and when the daemon has come to rest it is
looked at. To rest means the same state each time: the pages of the same accounts are open, nothing
waits, no worker runs, all webhook calls are made, and every process is there that ought to be.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import httpx
import trio

from tests.fakes.receiver import open_receiver
from tests.programs import sandbox
from tests.soak.conversions import convert, sync
from tests.soak.crashes import crash
from tests.soak.jobs import (
    Conversion,
    Crash,
    Form,
    Job,
    Kickoff,
    Link,
    Login,
    Planner,
    Sync,
    Victim,
)
from tests.soak.kickoffs import kick_off
from tests.soak.logins import log_in
from tests.soak.observable import WARM, observable, observer_of
from tests.soak.receiver import Ends
from tests.soak.samples import Json, Sample, measure, processes_of, renderers, tree
from tests.soak.schedule import Stretch, round_seconds, schedule
from tests.soak.world import PATIENCE, Book, World, Wrong, right

RATE: Final = 8.0
"""Jobs begun in a second at the most."""
AT_ONCE: Final = 6
"""Jobs under way at the same time."""
RESTING: Final = 2.0
"""Seconds of a round in which no job is begun."""
REST: Final = 1.0
"""Those of them in which the daemon and Chromium are left alone before they are looked at."""
REST_PATIENCE: Final = 120.0
LOOK_EVERY: Final = 0.1

Tell = Callable[[Sample], None]


@dataclass
class Soak:
    minutes: float
    seed: int
    sandboxed: bool
    samples: list[Sample] = field(default_factory=list)
    book: Book = field(default_factory=Book)


async def soak(result: Soak, log: Path, *, tell: Tell) -> None:
    """Run one, and fill `result` meanwhile, so that one that is ended early has come to something.

    `log` is where the daemon's log goes, and `tell` is called with each sample.
    """
    folder = _new_folder()
    try:
        with ExitStack() as programs:
            origins = programs.enter_context(sandbox(folder / "portal"))
            served = programs.enter_context(observable(folder / "daemon", origins))
            ends = Ends()
            async with open_receiver(ends.answer) as receiver:
                ends.url = receiver.url
                world = World(served, origins, ends, result.book)
                await _Running(world, result, tell).run()
                await _check_portal(world)
        _check_end(world)
    finally:
        with suppress(FileNotFoundError):
            shutil.copyfile(folder / "daemon" / "log", log)
        shutil.rmtree(folder, ignore_errors=True)


class _Running:
    def __init__(self, world: World, result: Soak, tell: Tell) -> None:
        self._world = world
        self._result = result
        self._tell = tell
        self._planner = Planner(result.seed)
        self._began = trio.current_time()

    async def run(self) -> None:
        async with _client() as http:
            await sync(self._world, http, Sync(0, local=True))
            await self._come_to_rest(http)
        length = round_seconds(self._result.minutes)
        ends = trio.current_time()
        for number, stretch in enumerate(schedule(self._result.minutes)):
            ends += stretch.seconds
            while True:
                await self._round(stretch, length - RESTING)
                await self._sample(number, stretch)
                if trio.current_time() + length / 2 > ends:
                    break

    async def _round(self, stretch: Stretch, seconds: float) -> None:
        """Begin jobs for so long, and see all of them to their ends."""
        room = trio.Semaphore(AT_ONCE)
        ends = trio.current_time() + seconds
        async with _client() as http, trio.open_nursery() as nursery:
            if stretch.storm:
                nursery.start_soon(self._kill_chromium, http, self._planner.moment(seconds / 2))
            while trio.current_time() < ends:
                job = self._planner.job(stretch.weights)
                nursery.start_soon(self._do_in, room, http, job)
                await trio.sleep(1 / RATE)
                async with room:  # nothing is begun while there is no room for it
                    pass

    async def _do_in(self, room: trio.Semaphore, http: httpx.AsyncClient, job: Job) -> None:
        async with room:
            await self._do(http, job)

    async def _kill_chromium(self, http: httpx.AsyncClient, moment: float) -> None:
        await trio.sleep(moment)
        await self._do(http, Crash(Victim.CHROMIUM, 0.0))

    async def _do(self, http: httpx.AsyncClient, job: Job) -> None:
        world = self._world
        try:
            match job:
                case Conversion():
                    await convert(world, http, job)
                case Login():
                    await log_in(world, http, job)
                case Kickoff():
                    await kick_off(world, http, job)
                case Sync():
                    await sync(world, http, job)
                case Crash():
                    await crash(world, http, job)
        except* (Wrong, httpx.HTTPError) as faults:
            for fault in faults.exceptions:
                world.book.note_wrong(f"{job}: {fault!r}")

    async def _sample(self, number: int, stretch: Stretch) -> None:
        """None, when the daemon does not come to rest: that is told, and the next round tries."""
        try:
            async with _client() as http:
                await self._come_to_rest(http)
                await self._look(http, number, stretch)
        except (Wrong, httpx.HTTPError) as fault:
            self._world.book.note_wrong(f"no sample: {fault!r}")

    async def _come_to_rest(self, http: httpx.AsyncClient) -> None:
        """Open the same pages as ever, and wait until nothing moves."""
        world = self._world
        await self._until(http, "a browser", lambda now: bool(now["browser"]["ready"]))
        for place in range(WARM):
            account = world.accounts[place]
            link = Link(Form.CANONICAL, self._planner.spare_item())
            body = {"links": [world.text(link)], "cookie": account.cookie}
            answer = right(await world.convert(http, body))
            entry = answer["mapping"][world.text(link)]
            world.check_entry(link, entry, account.number, (), calm=True)
        now = await self._until(http, "rest", _is_at_rest)
        tabs = None
        while tabs != (tabs := renderers(now["browser"]["pid"])):  # noqa: ASYNC110 - nobody tells
            await trio.sleep(REST)

    async def _until(self, http: httpx.AsyncClient, what: str, met: Callable[[Json], bool]) -> Json:
        with trio.move_on_after(REST_PATIENCE):
            while True:
                now = await self._world.status(http)
                if met(now):
                    return now
                await trio.sleep(LOOK_EVERY)
        raise Wrong(f"no {what} within {REST_PATIENCE:g} s: {now}")

    async def _look(self, http: httpx.AsyncClient, number: int, stretch: Stretch) -> None:
        world, result = self._world, self._result
        browser = (await world.status(http))["browser"]
        pid = browser["pid"]
        self._check_restarts(browser)
        if pid not in world.chromiums:
            world.chromiums.append(pid)
        values, kinds = measure(observer_of(world.daemon.folder), world.daemon.pid, pid)
        values["browser restarts"] = browser["restarts"]
        at = trio.current_time() - self._began
        generation = len(world.chromiums) - 1
        jobs = {str(kind): count for kind, count in world.book.done.items()}
        sample = Sample(at, number, stretch.name, generation, jobs, values, kinds)
        result.samples.append(sample)
        self._tell(sample)

    def _check_restarts(self, browser: Json) -> None:
        """Each restart has to be one that was caused. One for missed beats may be the machine's."""
        book, reason = self._world.book, str(browser["lastRestartReason"])
        caused = book.also["killed: chromium"] + book.also["restarts for missed beats"]
        for _ in range(browser["restarts"] - caused):
            book.also["restarts for missed beats"] += 1
            if not reason.startswith("unresponsive"):
                book.note_wrong(f"nobody killed Chromium: {reason}")


def _is_at_rest(now: Json) -> bool:
    browser, conversion = now["browser"], now["conversion"]
    waiting = (browser["jobsRunning"], browser["jobsWaiting"], conversion["requestsWaiting"])
    crews = [crew["running"] + crew["waiting"] for crew in now["crews"]]
    return not any(waiting) and not any(crews) and browser["contexts"] == WARM


def _new_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="smartlinkd-soak-"))
    folder.chmod(0o755)  # Chromium's user has to pass
    return folder


def _client() -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=AT_ONCE)
    return httpx.AsyncClient(timeout=PATIENCE, trust_env=False, verify=False, limits=limits)


async def _check_portal(world: World) -> None:
    """What only the portal can say of the daemon."""
    async with _client() as http:
        log = await world.ask_portal(http, "GET", "log")
    for account, seen in log["accounts"].items():
        if seen["overlapping_submits"] > 1:
            world.book.note_wrong(f"account {account} had {seen} submits at the same moment")
    if log["counters"].get("submit malformed"):
        world.book.note_wrong("the portal was sent a submit that it could not read")


def _check_end(world: World) -> None:
    """The daemon has ended by itself, and left nothing."""
    code = world.daemon.program.process.returncode
    if code != 0:
        world.book.note_wrong(f"the daemon ended with exit code {code}")
    folder = world.daemon.folder
    left = processes_of(folder)
    for chromium in world.chromiums:
        left += tree(chromium)
    if left:
        world.book.note_wrong(f"the daemon left processes behind: {left}")
    profiles = [path.name for path in folder.glob("smartlinkd-*")]
    if left_folders := [*profiles, *map(str, (folder / "state" / "runs").glob("*"))]:
        world.book.note_wrong(f"the daemon left folders behind: {left_folders}")
    for line in world.daemon.program.log.read_text(encoding="utf-8").splitlines():
        if '"exception"' in line or "fault of its own" in line:
            world.book.note_wrong(f"in the daemon's log: {line[:1000]}")
