"""Run a soak: rounds of jobs, with a sample after each.

A round starts jobs at a bounded rate, and waits for their ends. The sample is taken when the daemon
is idle: the same pages are open each time, nothing waits, and no worker runs.
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
from tests.soak.observable import WARM, observed_daemon, observer_path
from tests.soak.receiver import EndReceiver
from tests.soak.samples import Json, Sample, measure, processes_of, renderers, tree
from tests.soak.schedule import Stretch, round_seconds, schedule
from tests.soak.world import PATIENCE, Results, UnexpectedAnswer, World, expect_ok

MAX_RATE: Final = 8.0
"""The most jobs that are started in a second."""
MAX_CONCURRENT: Final = 6
"""The most jobs at the same time."""
ROUND_PAUSE: Final = 2.0
"""Seconds of a round in which no job is started."""
SETTLE: Final = 1.0
"""Seconds without any request before a sample."""
IDLE_DEADLINE: Final = 120.0
POLL_INTERVAL: Final = 0.1

OnSample = Callable[[Sample], None]


@dataclass
class Soak:
    minutes: float
    seed: int
    sandboxed: bool
    samples: list[Sample] = field(default_factory=list)
    results: Results = field(default_factory=Results)


async def soak(result: Soak, log: Path, *, on_sample: OnSample) -> None:
    """Run a soak, and add to `result`, which has the samples also when a signal ends the run.

    `log` is the path for the daemon's log. `on_sample` is called with each sample.
    """
    folder = _new_folder()
    try:
        with ExitStack() as programs:
            origins = programs.enter_context(sandbox(folder / "portal"))
            served = programs.enter_context(observed_daemon(folder / "daemon", origins))
            receiver = EndReceiver()
            async with open_receiver(receiver.answer) as server:
                receiver.url = server.url
                world = World(served, origins, receiver, result.results)
                await _Run(world, result, on_sample).run()
                await _check_portal(world)
        _check_end(world)
    finally:
        with suppress(FileNotFoundError):
            shutil.copyfile(folder / "daemon" / "log", log)
        shutil.rmtree(folder, ignore_errors=True)


class _Run:
    def __init__(self, world: World, result: Soak, on_sample: OnSample) -> None:
        self._world = world
        self._result = result
        self._on_sample = on_sample
        self._planner = Planner(result.seed)
        self._began = trio.current_time()

    async def run(self) -> None:
        async with _client() as http:
            await sync(self._world, http, Sync(0, local=True))
            await self._wait_until_idle(http)
        length = round_seconds(self._result.minutes)
        ends = trio.current_time()
        for number, stretch in enumerate(schedule(self._result.minutes)):
            ends += stretch.seconds
            while True:
                await self._round(stretch, length - ROUND_PAUSE)
                await self._sample(number, stretch)
                if trio.current_time() + length / 2 > ends:
                    break

    async def _round(self, stretch: Stretch, seconds: float) -> None:
        """Start jobs for so many seconds, and wait for their ends."""
        slots = trio.Semaphore(MAX_CONCURRENT)
        ends = trio.current_time() + seconds
        async with _client() as http, trio.open_nursery() as nursery:
            if stretch.kills_chromium:
                nursery.start_soon(self._kill_chromium, http, self._planner.moment(seconds / 2))
            while trio.current_time() < ends:
                job = self._planner.job(stretch.weights)
                nursery.start_soon(self._run_in_slot, slots, http, job)
                await trio.sleep(1 / MAX_RATE)
                async with slots:  # wait for a free slot before the next job is drawn
                    pass

    async def _run_in_slot(self, slots: trio.Semaphore, http: httpx.AsyncClient, job: Job) -> None:
        async with slots:
            await self._run_job(http, job)

    async def _kill_chromium(self, http: httpx.AsyncClient, moment: float) -> None:
        await trio.sleep(moment)
        await self._run_job(http, Crash(Victim.CHROMIUM, 0.0))

    async def _run_job(self, http: httpx.AsyncClient, job: Job) -> None:
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
        except* (UnexpectedAnswer, httpx.HTTPError) as faults:
            for fault in faults.exceptions:
                world.results.record_error(f"{job}: {fault!r}")

    async def _sample(self, number: int, stretch: Stretch) -> None:
        """Take a sample. A daemon that does not become idle is an error without a sample."""
        try:
            async with _client() as http:
                await self._wait_until_idle(http)
                await self._take_sample(http, number, stretch)
        except (UnexpectedAnswer, httpx.HTTPError) as fault:
            self._world.results.record_error(f"no sample: {fault!r}")

    async def _wait_until_idle(self, http: httpx.AsyncClient) -> None:
        """Open the pages of the same accounts, and wait until the daemon is idle."""
        world = self._world
        await self._until(http, "browser", lambda status: bool(status["browser"]["ready"]))
        for place in range(WARM):
            account = world.accounts[place]
            link = Link(Form.CANONICAL, self._planner.spare_item())
            body = {"links": [world.text(link)], "cookie": account.cookie}
            answer = expect_ok(await world.convert(http, body))
            entry = answer["mapping"][world.text(link)]
            world.check_entry(link, entry, account.number, (), is_undisturbed=True)
        status = await self._until(http, "idle daemon", _is_idle)
        tabs = None
        while tabs != (tabs := renderers(status["browser"]["pid"])):  # noqa: ASYNC110 - there is no event
            await trio.sleep(SETTLE)

    async def _until(
        self, http: httpx.AsyncClient, what: str, condition: Callable[[Json], bool]
    ) -> Json:
        with trio.move_on_after(IDLE_DEADLINE):
            while True:
                status = await self._world.status(http)
                if condition(status):
                    return status
                await trio.sleep(POLL_INTERVAL)
        raise UnexpectedAnswer(f"no {what} within {IDLE_DEADLINE:g} s: {status}")

    async def _take_sample(self, http: httpx.AsyncClient, number: int, stretch: Stretch) -> None:
        world, result = self._world, self._result
        browser = (await world.status(http))["browser"]
        pid = browser["pid"]
        self._check_restarts(browser)
        if pid not in world.chromiums:
            world.chromiums.append(pid)
        values, kinds = measure(observer_path(world.daemon.folder), world.daemon.pid, pid)
        values["browser restarts"] = browser["restarts"]
        at = trio.current_time() - self._began
        generation = len(world.chromiums) - 1
        jobs = {str(kind): count for kind, count in world.results.jobs_done.items()}
        sample = Sample(at, number, stretch.name, generation, jobs, values, kinds)
        result.samples.append(sample)
        self._on_sample(sample)

    def _check_restarts(self, browser: Json) -> None:
        """Check that each restart of Chromium had a cause: a kill, or missed probes."""
        results, reason = self._world.results, str(browser["lastRestartReason"])
        caused = (
            results.other_counts["killed: chromium"]
            + results.other_counts["restarts for missed probes"]
        )
        for _ in range(browser["restarts"] - caused):
            results.other_counts["restarts for missed probes"] += 1
            if not reason.startswith("unresponsive"):
                results.record_error(f"nobody killed Chromium: {reason}")


def _is_idle(status: Json) -> bool:
    browser, conversion = status["browser"], status["conversion"]
    waiting = (browser["jobsRunning"], browser["jobsWaiting"], conversion["requestsWaiting"])
    crews = [crew["running"] + crew["waiting"] for crew in status["crews"]]
    return not any(waiting) and not any(crews) and browser["contexts"] == WARM


def _new_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="smartlinkd-soak-"))
    folder.chmod(0o755)  # Chromium's user has to enter it
    return folder


def _client() -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=MAX_CONCURRENT)
    return httpx.AsyncClient(timeout=PATIENCE, trust_env=False, verify=False, limits=limits)


async def _check_portal(world: World) -> None:
    """Check what the portal has recorded of the daemon's submits."""
    async with _client() as http:
        log = await world.ask_portal(http, "GET", "log")
    for account, seen in log["accounts"].items():
        if seen["overlapping"] > 1:
            world.results.record_error(f"account {account} had {seen} submits at the same moment")
    if log["counters"].get("submit malformed"):
        world.results.record_error("the portal was sent a submit that it could not read")


def _check_end(world: World) -> None:
    """Check that the daemon has ended with code 0, and left no process and no folder."""
    code = world.daemon.program.process.returncode
    if code != 0:
        world.results.record_error(f"the daemon ended with exit code {code}")
    folder = world.daemon.folder
    left = processes_of(folder)
    for chromium in world.chromiums:
        left += tree(chromium)
    if left:
        world.results.record_error(f"the daemon left processes behind: {left}")
    profiles = [path.name for path in folder.glob("smartlinkd-*")]
    if left_folders := [*profiles, *map(str, (folder / "state" / "runs").glob("*"))]:
        world.results.record_error(f"the daemon left folders behind: {left_folders}")
    for line in world.daemon.program.log.read_text(encoding="utf-8").splitlines():
        if '"exception"' in line or "fault of its own" in line:
            world.results.record_error(f"in the daemon's log: {line[:1000]}")
