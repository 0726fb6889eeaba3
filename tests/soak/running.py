"""Run a soak: rounds of jobs, with a sample after each.

A round starts jobs at a bounded rate, and waits for their ends. The sample is taken when the daemon
is idle: the same pages are open each time, nothing waits, and no worker runs.

In most stretches of time all kinds of jobs are mixed. Crashes of Chromium have short stretches of
their own, so that one Chromium lives long enough between them to show its growth.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Final

import httpx
import trio

from bench.daemons import daemon
from tests.fakes.receiver import open_receiver
from tests.programs import sandbox
from tests.simulation.answers import WrongAnswer
from tests.soak.crew import EndReceiver
from tests.soak.jobs import JOBS, Job, check_conversion, kill_chromium, sync
from tests.soak.samples import Sample, measure, processes_of, renderers, tree
from tests.soak.world import TABLES, WARM, Json, Results, World, expect_ok, pick

MAX_RATE: Final = 8.0
"""The most jobs that are started in a second."""
MAX_CONCURRENT: Final = 6
"""The most jobs at the same time."""
ROUND_SECONDS: Final = (3.0, 12.0)
"""The shortest and the longest round, in seconds."""
ROUND_PAUSE: Final = 2.0
"""Seconds of a round in which no job is started, for the sample."""
MIN_ROUNDS: Final = 40
"""The number of rounds in a short soak. There are fewer if they would be too short."""
CYCLE: Final = 1200.0
"""Seconds of a cycle: a stretch with crashes and a mixed one. There are three cycles or more."""
WARM_UP: Final = 300.0
"""Seconds until bounded tables are full; at most half of the soak."""
CRASH_SHARE: Final = 0.15
"""The share of the crashes in a cycle."""
MAX_CRASH_SECONDS: Final = 60.0
"""Seconds. The daemon restarts Chromium more slowly after each crash in a short time."""
SETTLE: Final = 1.0
"""Seconds without any request before a sample."""
IDLE_DEADLINE: Final = 120.0
PATIENCE: Final = 90.0
"""Seconds for an answer: longer than the daemon's own deadlines."""

_MIXED: Final = {"conversion": 0.62, "login": 0.1, "kickoff": 0.2, "sync": 0.06, "crash": 0.02}
_CRASHES: Final = {"conversion": 0.9, "kickoff": 0.1}

OnSample = Callable[[Sample], None]


@dataclass(frozen=True)
class Stretch:
    """A stretch of time with one mix of jobs."""

    seconds: float
    weights: Mapping[str, float]
    kills_chromium: bool = False
    """True if Chromium is killed once in each round."""


def schedule(minutes: float) -> list[Stretch]:
    """Return the stretches of a soak. The first one is its warm-up."""
    seconds = minutes * 60
    warm_up = min(WARM_UP, seconds / 2)
    seconds -= warm_up
    cycles = max(3, round(seconds / CYCLE))
    cycle = seconds / cycles
    crashes = min(MAX_CRASH_SECONDS, CRASH_SHARE * cycle)
    pair = [Stretch(crashes, _CRASHES, kills_chromium=True), Stretch(cycle - crashes, _MIXED)]
    return [Stretch(warm_up, _MIXED), *pair * cycles]


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
    observer = folder / "observer"
    try:
        with ExitStack() as programs:
            origins = programs.enter_context(sandbox(folder / "portal"))
            runner = ("tests.soak.observed", str(observer))
            served = programs.enter_context(
                daemon(folder / "daemon", origins, TABLES, ready=False, runner=runner)
            )
            receiver = EndReceiver()
            async with open_receiver(receiver.answer) as server:
                receiver.url = server.url
                world = World(served, origins, receiver, result.results)
                await _Run(world, result, observer, on_sample).run()
                await _check_portal(world)
        _check_end(world)
    finally:
        with suppress(FileNotFoundError):
            shutil.copyfile(folder / "daemon" / "log", log)
        shutil.rmtree(folder, ignore_errors=True)


class _Run:
    def __init__(self, world: World, result: Soak, observer: Path, on_sample: OnSample) -> None:
        self._world = world
        self._result = result
        self._observer = observer
        self._on_sample = on_sample
        self._began = trio.current_time()
        self._numbers = count(1)

    async def run(self) -> None:
        async with _client() as http:
            await sync(self._world, http, self._next_chance())
            await self._wait_until_idle(http)
        shortest, longest = ROUND_SECONDS
        length = min(longest, max(shortest, self._result.minutes * 60 / MIN_ROUNDS))
        ends = trio.current_time()
        for number, stretch in enumerate(schedule(self._result.minutes)):
            ends += stretch.seconds
            while True:
                await self._round(stretch, length - ROUND_PAUSE)
                await self._sample(number)
                if trio.current_time() + length / 2 > ends:
                    break

    def _next_chance(self) -> random.Random:
        """Return the generator of the next job."""
        return random.Random(f"{self._result.seed} {next(self._numbers)}")

    async def _round(self, stretch: Stretch, seconds: float) -> None:
        """Start jobs for so many seconds, and wait for their ends."""
        slots = trio.Semaphore(MAX_CONCURRENT)
        ends = trio.current_time() + seconds
        async with _client() as http, trio.open_nursery() as nursery:
            if stretch.kills_chromium:
                nursery.start_soon(self._run_job, http, kill_chromium, self._next_chance())
            while trio.current_time() < ends:
                chance = self._next_chance()
                job = JOBS[pick(chance, stretch.weights)]
                nursery.start_soon(self._run_in_slot, slots, http, job, chance)
                await trio.sleep(1 / MAX_RATE)
                async with slots:  # wait for a free slot before the next job is drawn
                    pass

    async def _run_in_slot(
        self, slots: trio.Semaphore, http: httpx.AsyncClient, job: Job, chance: random.Random
    ) -> None:
        async with slots:
            await self._run_job(http, job, chance)

    async def _run_job(self, http: httpx.AsyncClient, job: Job, chance: random.Random) -> None:
        try:
            await job(self._world, http, chance)
        except* (WrongAnswer, httpx.HTTPError) as faults:
            for fault in faults.exceptions:
                self._world.results.record_error(f"{job.__name__}: {fault!r}")

    async def _sample(self, number: int) -> None:
        """Take a sample. A daemon that does not become idle is an error without a sample."""
        try:
            async with _client() as http:
                await self._wait_until_idle(http)
                await self._take_sample(http, number)
        except (WrongAnswer, httpx.HTTPError) as fault:
            self._world.results.record_error(f"no sample: {fault!r}")

    async def _wait_until_idle(self, http: httpx.AsyncClient) -> None:
        """Open the pages of the same accounts, and wait until the daemon is idle."""
        world = self._world
        await world.until(
            http, "browser", lambda status: bool(status["browser"]["ready"]), IDLE_DEADLINE
        )
        for account in world.accounts[:WARM]:
            link = world.canonical_link()
            answer = await world.convert(http, {"links": [link.text], "cookie": account.cookie})
            check_conversion(world.origins, [link], (), expect_ok(answer), [account.number])
        status = await world.until(http, "idle daemon", _is_idle, IDLE_DEADLINE)
        tabs = None
        while tabs != (tabs := renderers(status["browser"]["pid"])):  # noqa: ASYNC110 - there is no event
            await trio.sleep(SETTLE)

    async def _take_sample(self, http: httpx.AsyncClient, stretch: int) -> None:
        world, result = self._world, self._result
        browser = (await world.status(http))["browser"]
        pid = browser["pid"]
        self._check_restarts(browser)
        if pid not in world.chromiums:
            world.chromiums.append(pid)
        values = measure(self._observer, world.daemon.pid, pid)
        values["browser restarts"] = browser["restarts"]
        jobs = {kind: world.results.done[kind] for kind in JOBS}
        at = trio.current_time() - self._began
        sample = Sample(at, stretch, len(world.chromiums) - 1, jobs, values)
        result.samples.append(sample)
        self._on_sample(sample)

    def _check_restarts(self, browser: Json) -> None:
        """Check that each restart of Chromium had a cause: a kill, or missed probes."""
        results, reason = self._world.results, str(browser["lastRestartReason"])
        caused = results.others["killed: chromium"] + results.others["restarts for missed probes"]
        for _ in range(browser["restarts"] - caused):
            results.others["restarts for missed probes"] += 1
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
