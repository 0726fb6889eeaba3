"""Row 8: a crew's executions, from the kickoff to the start and to the result; and status polls.

Beside the daemon stand a bare process, and Celery with Redis behind FastAPI. All run the same
program, at most 16 at a time. They promise different things: the bare process nothing; Celery keeps
the task in Redis, here on the disk; the daemon also writes the execution and each step to the disk,
and gives the worker a folder and a process tree that ends with the daemon.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench.asking import JsonClient
from bench.daemons import PATIENCE, Daemon, daemon, wait_until
from bench.kept import execution_id, store_executions
from bench.load import Request, load
from bench.measure import NO_GOAL, Comparison, Goal, Plan, Row, Series, interleave, turns
from bench.program import PYTHON, SH, run_once
from tests.config_file import Tables
from tests.programs import NotStarted, Program, sandbox

OURS, BARE, CELERY = "smartlinkd", "a bare process", "Celery with Redis"
PROMISES = "the promises alone"
AT_A_TIME: Final = 16
"""The most programs that run at the same time."""
AT_ONCE: Final = (1, 10, 50, 200)
AT_ONCE_QUICK: Final = (1, 10)
ROUNDS: Final = 200
"""Rounds of one execution: enough to see 2 or 3 per cent, which is the difference to Celery."""
ROUNDS_OF_MANY: Final = 24
"""The fewest rounds of many executions. Celery's client is seconds late in some rounds."""
KEPT: Final = 10_000
RESULT: Final = "A post of some length: " + "00" * 200
POLLERS: Final = 16
POLLED: Final = [execution_id(number) for number in range(1, KEPT, KEPT // POLLERS)]
BESIDE_BARE: Final = Goal(at_most=2.0)
BESIDE_CELERY: Final = Goal(at_most=1.25)
POLLS: Final = Goal(at_least=1.0)


def row_8(plan: Plan) -> Row:
    with _side_by_side(plan) as (served, peer), _promises_alone(plan.folder) as floor:
        comparisons = [
            *_single(plan, served, peer, floor),
            *_many(plan, served, peer, floor),
            *_polls(plan, served, peer),
        ]
    return Row(
        8,
        "executions: to the worker's start, to the result; status polls",
        comparisons,
        [
            f"at most {AT_A_TIME} programs at a time on each side; of ours, twice as many as there "
            "are processors come up at the same time",
            "Celery has a pool of as many threads, acknowledges late, and Redis writes each change "
            "to its disk; who polls it asks FastAPI",
            f"{KEPT} executions are kept while status is polled, on both sides; each of {POLLERS} "
            "clients polls one of its own",
            "who asks keeps the connection open, ours as Celery's own client",
            "our result, and the floor's, is told when the program has said it and it is on the "
            "disk; the bare process and Celery's task wait for the program's end, as anybody's do",
            "the floor: a server with two routes that puts an id on the disk, runs the program "
            "with a reaper, and puts the result there: no token, no line, no folder, no event",
        ],
    )


def _single(plan: Plan, served: Daemon, peer: _Celery, floor: _Endpoint) -> Iterator[Comparison]:
    """Compare single executions: in Python to the start and to the result, in sh to the result."""
    python, sh = _endpoint(served, "python"), _endpoint(served, "sh")
    with python.connected() as ours, sh.connected() as small, floor.connected() as least:
        yield from _single_in_python(plan, ours, peer, least)
        yield _single_in_sh(plan, small)


def _single_in_python(
    plan: Plan, ours: _ExecutionClient, peer: _Celery, least: _ExecutionClient
) -> Iterator[Comparison]:
    sides: dict[str, Callable[[], str]] = {
        OURS: ours.run,
        BARE: partial(run_once, PYTHON),
        CELERY: partial(peer.run, PYTHON),
        PROMISES: least.run,
    }
    starts: dict[str, list[float]] = {side: [] for side in sides}
    results: dict[str, list[float]] = {side: [] for side in sides}
    for run in sides.values():
        run()
    plan.tell("one execution at a time")
    for _, side in turns(list(sides), plan.rounds(ROUNDS, 5)):
        asked = time.monotonic()
        began = float(sides[side]())
        starts[side].append(began - asked)
        results[side].append(time.monotonic() - asked)
    for what, found in {"to the worker's start": starts, "to the result": results}.items():
        for side, goal in {BARE: BESIDE_BARE, CELERY: BESIDE_CELERY}.items():
            yield _comparison(what, found, side, goal, PROMISES)


def _single_in_sh(plan: Plan, ours: _ExecutionClient) -> Comparison:
    small = interleave(
        {
            OURS: partial(_seconds_of, ours.run),
            BARE: partial(_seconds_of, partial(run_once, SH)),
        },
        plan.rounds(40, 5),
    )
    return _comparison("to the result, in sh", small, BARE)


def _many(plan: Plan, served: Daemon, peer: _Celery, floor: _Endpoint) -> Iterator[Comparison]:
    """Compare many executions that are wanted at once, until all have their results."""
    ours = _endpoint(served, "python")
    for wanted in AT_ONCE_QUICK if plan.quick else AT_ONCE:
        if wanted == 1:
            continue
        plan.tell(f"{wanted} executions at once")
        found = interleave(
            {
                OURS: partial(_seconds_of, partial(ours.run_many, wanted)),
                BARE: partial(_seconds_of, partial(_bare_many, wanted)),
                CELERY: partial(_seconds_of, partial(peer.run_many, wanted)),
                PROMISES: partial(_seconds_of, partial(floor.run_many, wanted)),
            },
            plan.rounds(max(ROUNDS_OF_MANY, 800 // wanted), 2),
        )
        for side, goal in {BARE: BESIDE_BARE, CELERY: BESIDE_CELERY}.items():
            yield _comparison(f"{wanted} at once, to all results", found, side, goal, PROMISES)


def _polls(plan: Plan, served: Daemon, peer: _Celery) -> Iterator[Comparison]:
    headers = _authorization(served, "kept")
    ours = [Request(f"{served.url}/crews/kept/status/{id_}", headers) for id_ in POLLED]
    requests = {OURS: ours, CELERY: peer.polls()}
    rates: dict[str, list[float]] = {side: [] for side in requests}
    seconds = 0.4 if plan.quick else 1.0
    plan.tell("status polls")
    for each in requests.values():
        load(each, connections=POLLERS, seconds=seconds / 2)
    for _, side in turns(list(requests), plan.rounds(8, 2)):
        answered = load(requests[side], connections=POLLERS, seconds=seconds)
        rates[side].append(answered.rate)
    first, second = (Series(side, "/s", rates[side]) for side in (OURS, CELERY))
    yield Comparison("status polls a second", first, second, "more", POLLS)


def _comparison(
    name: str,
    found: Mapping[str, Sequence[float]],
    theirs: str,
    goal: Goal = NO_GOAL,
    floor: str | None = None,
) -> Comparison:
    first, second = (Series(side, "s", found[side]) for side in (OURS, theirs))
    least = None if floor is None else Series(floor, "s", found[floor])
    return Comparison(name, first, second, goal=goal, floor=least)


def _seconds_of(do: Callable[[], object]) -> float:
    began = time.perf_counter()
    do()
    return time.perf_counter() - began


def _bare_many(wanted: int) -> None:
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        list(pool.map(run_once, [PYTHON] * wanted))


@dataclass(frozen=True)
class _Endpoint:
    """The address and headers of a server that runs executions."""

    url: str
    path: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)

    @contextmanager
    def connected(self) -> Iterator[_ExecutionClient]:
        """Open one connection."""
        with JsonClient(self.url, self.headers) as client:
            yield _ExecutionClient(client, self.path)

    def run_many(self, wanted: int) -> None:
        """Run `wanted` executions on one connection: kick off all, then wait for each result."""
        with self.connected() as executions:
            for id_ in [executions.kick_off() for _ in range(wanted)]:
                executions.result_of(id_)


class _ExecutionClient:
    """A client that kicks executions off and waits for their results."""

    def __init__(self, client: JsonClient, path: str) -> None:
        self._client = client
        self._path = path

    def run(self) -> str:
        return self.result_of(self.kick_off())

    def kick_off(self) -> str:
        return str(self._client.post(f"{self._path}/kickoff", {"inputs": {}})["kickoff_id"])

    def result_of(self, id_: str) -> str:
        while True:
            found = self._client.get(f"{self._path}/status/{id_}?wait=30")
            if found["state"] in ("SUCCESS", "FAILED"):
                return _result(found)


def _endpoint(served: Daemon, crew: str) -> _Endpoint:
    """Return the endpoint of one of the daemon's crews."""
    return _Endpoint(served.url, f"/crews/{crew}", _authorization(served, crew))


def _authorization(served: Daemon, crew: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {served.crew_token(crew)}"}


def _result(found: Mapping[str, Any]) -> str:
    if found["state"] != "SUCCESS":
        raise RuntimeError(f"an execution failed: {found}")
    return str(found["result"])


@dataclass(frozen=True)
class _Celery:
    """Celery, as its client sees it. `task` runs the program; `url` is FastAPI's address."""

    task: Any
    url: str

    def run(self, words: list[str]) -> str:
        return str(self.task.delay(words).get(timeout=PATIENCE))

    def run_many(self, wanted: int) -> None:
        for waiting in [self.task.delay(PYTHON) for _ in range(wanted)]:
            waiting.get(timeout=PATIENCE)

    def polls(self) -> list[Request]:
        return [Request(f"{self.url}/status/{id_}") for id_ in POLLED]


@contextmanager
def _side_by_side(plan: Plan) -> Iterator[tuple[Daemon, _Celery]]:
    crews = [
        {
            "name": name,
            "runner": "command",
            "command": words,
            "max_running": AT_A_TIME,
            "queue": max(AT_ONCE),
        }
        for name, words in {"python": PYTHON, "sh": SH, "kept": SH}.items()
    ]
    with ExitStack() as running:
        plan.tell("starting the daemon, Redis, Celery and FastAPI")
        portal = running.enter_context(sandbox(plan.folder / "portal"))
        (plan.folder / "state").mkdir()
        store_executions(plan.folder / "state" / "daemon", "kept", KEPT)
        tables: Tables = {
            "state": {"directory": str(plan.folder / "state" / "daemon")},
            "journal": {"retention_count": 10 * KEPT},
            "crews": crews,
        }
        served = running.enter_context(daemon(plan.folder / "daemon", portal, tables))
        yield served, _start_celery(running, plan.folder)


@contextmanager
def _promises_alone(folder: Path) -> Iterator[_Endpoint]:
    """Run the server of the floor during the block."""
    home = folder / "promises-alone"
    home.mkdir()
    words = [sys.executable, "-m", "bench.peers.promises_alone", str(home)]
    with (
        (home / "log").open("wb") as log,
        subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            process_group=0,
        ) as process,
    ):
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        if not url:
            raise NotStarted((home / "log").read_text(encoding="utf-8")[-2000:])
        yield _Endpoint(url)  # the process ends with its standard input


def _start_celery(running: ExitStack, folder: Path) -> _Celery:
    os.environ["BENCH_REDIS"] = address = _redis(running, folder / "redis")
    from bench.peers import celery_app  # noqa: PLC0415 - the module reads BENCH_REDIS

    running.callback(_close_client, celery_app.app)
    _store_results(celery_app.app.backend)
    (folder / "celery").mkdir()
    (folder / "web").mkdir()
    extra_environment = {"BENCH_REDIS": address}
    app = "bench.peers.celery_app"
    pool = ["--pool", "threads", "--concurrency", str(AT_A_TIME)]
    worker = Program(
        *("celery", "-A", app, "worker", *pool, "--loglevel", "info"),
        folder=folder / "celery",
        log=folder / "celery" / "log",
        extra_environment=extra_environment,
    )
    running.callback(worker.stop)
    web = Program(
        *("uvicorn", "--port", "0", "--no-access-log", f"{app}:web"),
        folder=folder / "web",
        log=folder / "web" / "log",
        extra_environment=extra_environment,
    )
    running.callback(web.stop)
    worker.wait_for(r"celery@\S+ ready", worker.log)
    url = web.wait_for(r"unning on (http://[0-9.:]+)", web.log)[1]
    return _Celery(celery_app.run, url)


def _redis(running: ExitStack, folder: Path) -> str:
    """Start a Redis that writes each change to the disk; return its address."""
    folder.mkdir()
    path = folder / "socket"
    words = ["--port", "0", "--unixsocket", str(path), "--dir", str(folder), "--save", ""]
    durable = ["--appendonly", "yes", "--appendfsync", "always"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(["redis-server", *words, *durable], stdout=log, process_group=0)

    def stop() -> None:
        process.terminate()
        process.wait()

    running.callback(stop)
    wait_until(lambda: path.exists() or process.poll() is not None, folder / "log")
    if process.returncode is not None:
        raise NotStarted((folder / "log").read_text(encoding="utf-8")[-2000:])
    return f"redis+socket://{path}"


def _close_client(app: Any) -> None:
    """Close Celery's client before Redis stops. It would try to reconnect for ever, and each result
    that is garbage-collected for a while."""
    gc.collect()
    app.backend.result_consumer.stop()
    app.close()


def _store_results(backend: Any) -> None:
    """Store as many results in Celery's backend as the daemon has, of the same size."""
    pipeline = backend.client.pipeline()
    for number in range(1, KEPT + 1):
        id_ = execution_id(number)
        told: dict[str, Any] = {
            "task_id": id_,
            "status": "SUCCESS",
            "result": RESULT,
            "traceback": None,
            "children": [],
            "date_done": "2026-01-01T00:00:00+00:00",
        }
        pipeline.set(backend.get_key_for_task(id_), json.dumps(told))
    pipeline.execute()
