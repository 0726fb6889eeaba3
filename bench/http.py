"""Row 6: plain requests a second, and the 99th percentile of their times.

Beside two trivial apps that answer the same bodies: Quart-Trio on hypercorn, which the daemon uses,
and FastAPI on uvicorn, which is fast. The daemon's answers pass its guards; theirs are constants.
Servers and load have a processor each if there are two. The requests: `/api/health`; `/api/crews`,
which needs a session token; and the cookie.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx

from bench.converting import converting
from bench.daemons import PATIENCE, Daemon, daemon, wait_until
from bench.load import LoadFailed, LoadResult, Request, load
from bench.measure import Comparison, Goal, Plan, Row, Series, turns
from bench.peers.answers import new_token
from smartlinkd.sandbox.batch import Origins
from smartlinkd.sandbox.session import cookie_header
from tests.programs import Program, sandbox

OURS, QUART, FASTAPI, BUSY = "smartlinkd", "Quart-Trio as shipped", "FastAPI on uvicorn", "at work"
CREW: Final = "bench"
REFUSED: Final = 403
"""Status of an answer to a request without a token."""
QUESTIONS: Final = {
    "health": "/api/health",
    "login-protected": "/api/crews",
    "cookie": "/api/sync-cookie",
}
AS_MEANT: Final[Mapping[str, Callable[[Any], bool]]] = {
    "health": lambda body: body["browserReady"] is True,
    "login-protected": lambda body: [crew["name"] for crew in body["crews"]] == [CREW],
    "cookie": lambda body: bool(body["cookie"]),
}
"""Checks that an answer is the one that is meant to be measured."""
CONNECTIONS: Final = 16
GOAL: Final = Goal(at_least=1.0)
GOAL_P99: Final = Goal(at_most=1.0)
AT_WORK: Final = 8
"""Executions that run while the daemon is measured at work. It converts links meanwhile, too."""
WORKER: Final = """
IFS= read -r inputs <&3
say() { printf '%s\\n' "$1" >&3; }
say '{"type": "started", "total_tasks": 1}'
while :; do
    say '{"type": "log", "text": "at work"}'
    sleep 0.2
done
"""


def row_6(plan: Plan) -> Row:
    rounds, seconds = plan.rounds(7, 2), 0.4 if plan.quick else 1.0
    with _servers(plan.folder) as (served, portal, addresses):
        headers = {
            OURS: {"Authorization": f"Bearer {served.token}"},
            QUART: {"Authorization": f"Bearer {new_token()}"},
            FASTAPI: {"Authorization": f"Bearer {new_token()}"},
        }
        for side, url in addresses.items():
            check_answers(url, headers[side])
        found: dict[str, dict[str, list[LoadResult]]] = {}
        for question, path in QUESTIONS.items():
            requests = {side: Request(url + path, headers[side]) for side, url in addresses.items()}
            plan.tell(f"{question}, {rounds} rounds")
            found[question] = _measured(requests, rounds, seconds)
        plan.tell(f"health while it is at work, {rounds} rounds")
        busy = _while_at_work(served, portal, rounds, seconds)
    comparisons = [
        one for question, answered in found.items() for one in _comparisons(question, answered)
    ]
    comparisons += [
        Comparison(
            "health a second, while it converts and 8 crews run", *_rates(busy, BUSY, OURS), "more"
        ),
        Comparison("the same, p99", *_p99s(busy, BUSY, OURS)),
    ]
    return Row(
        6,
        "plain questions a second, and the slowest hundredth",
        comparisons,
        [
            f"{CONNECTIONS} connections, kept open, each asking again when it is answered",
            "beside itself at rest: what conversions and crews take from the one interpreter",
        ],
    )


def _comparisons(question: str, answered: Mapping[str, list[LoadResult]]) -> Iterator[Comparison]:
    yield Comparison(f"{question} a second", *_rates(answered, OURS, QUART), "more", GOAL)
    yield Comparison(f"{question}, p99", *_p99s(answered, OURS, QUART), goal=GOAL_P99)
    yield Comparison(f"{question} a second", *_rates(answered, OURS, FASTAPI), "more")


def _rates(
    answered: Mapping[str, list[LoadResult]], ours: str, theirs: str
) -> tuple[Series, Series]:
    first, second = (
        Series(side, "/s", [one.rate for one in answered[side]]) for side in (ours, theirs)
    )
    return first, second


def _p99s(
    answered: Mapping[str, list[LoadResult]], ours: str, theirs: str
) -> tuple[Series, Series]:
    first, second = (
        Series(side, "s", [one.p99 for one in answered[side]]) for side in (ours, theirs)
    )
    return first, second


def check_answers(url: str, headers: Mapping[str, str]) -> None:
    """Check that a server answers each question correctly and refuses a request without a token.

    Raises `LoadFailed` if it does not.
    """
    with httpx.Client(base_url=url, timeout=PATIENCE, trust_env=False) as http:
        if (status := http.get(QUESTIONS["login-protected"]).status_code) != REFUSED:
            raise LoadFailed(f"{url}: {status} without a token")
        for question, path in QUESTIONS.items():
            answer = http.get(path, headers=headers)
            if answer.status_code != 200 or not AS_MEANT[question](answer.json()):
                raise LoadFailed(f"{url}: {question}: {answer.status_code}")


def _measured(
    requests: Mapping[str, Request], rounds: int, seconds: float
) -> dict[str, list[LoadResult]]:
    found: dict[str, list[LoadResult]] = {side: [] for side in requests}
    for request in requests.values():
        load([request], connections=CONNECTIONS, seconds=seconds / 2)  # warm-up
    for _, side in turns(list(requests), rounds):
        found[side].append(load([requests[side]], connections=CONNECTIONS, seconds=seconds))
    return found


def _while_at_work(
    served: Daemon, portal: Origins, rounds: int, seconds: float
) -> dict[str, list[LoadResult]]:
    """Measure the daemon at rest and at work, in turns."""
    request = Request(f"{served.url}/api/health")
    found: dict[str, list[LoadResult]] = {OURS: [], BUSY: []}
    for number, side in turns([OURS, BUSY], rounds):
        with _busy(served, portal, number) if side == BUSY else ExitStack():
            found[side].append(load([request], connections=CONNECTIONS, seconds=seconds))
    return found


@contextmanager
def _busy(served: Daemon, portal: Origins, number: int) -> Iterator[None]:
    """Keep the daemon at work: executions that write logs, and conversions one after the other."""
    token = served.crew_token(CREW)
    with served.client() as http:
        http.headers["Authorization"] = f"Bearer {token}"
        ids = [
            http.post(f"/crews/{CREW}/kickoff", json={"inputs": {}}).json()["kickoff_id"]
            for _ in range(AT_WORK)
        ]

        def state(one: str) -> str:
            return str(http.get(f"/crews/{CREW}/status/{one}").json()["state"])

        def has_started(one: str) -> bool:
            return state(one) != "PENDING"

        for one in ids:
            wait_until(partial(has_started, one), served.program.log)
            if (now := state(one)) != "RUNNING":
                raise LoadFailed(f"the crew's execution {one} is {now}")
        try:
            log = served.folder / f"converting-{number}"
            with converting(served.url, served.token, portal, 100_000 * number, log):
                yield
        finally:
            for one in ids:
                http.post(f"/crews/{CREW}/stop/{one}").raise_for_status()


@contextmanager
def _servers(folder: Path) -> Iterator[tuple[Daemon, Origins, dict[str, str]]]:
    """Run the three servers on one processor, and the load on another, if there are two."""
    crew = {
        "name": CREW,
        "runner": "command",
        "command": ["/bin/sh", "-c", WORKER],
        "max_running": AT_WORK,
        "grace": 1,
    }
    with ExitStack() as running:
        portal = running.enter_context(sandbox(folder / "portal"))
        served = running.enter_context(daemon(folder / "daemon", portal, {"crews": [crew]}))
        served.ask("POST", "/api/sync-cookie", {"cookie": cookie_header()})
        quart = _peer(
            running,
            folder / "quart",
            "hypercorn",
            ["-k", "trio", "--workers", "0", "--bind", "127.0.0.1:0", "bench.peers.quart_app:app"],
        )
        fastapi = _peer(
            running,
            folder / "fastapi",
            "uvicorn",
            ["--port", "0", "--no-access-log", "bench.peers.fastapi_app:app"],
        )
        programs = {OURS: served.program, QUART: quart[0], FASTAPI: fastapi[0]}
        _pin_processors(running, [program.process.pid for program in programs.values()])
        yield served, portal, {OURS: served.url, QUART: quart[1], FASTAPI: fastapi[1]}


def _peer(running: ExitStack, folder: Path, module: str, words: list[str]) -> tuple[Program, str]:
    folder.mkdir()
    program = Program(module, *words, folder=folder, log=folder / "log")
    running.callback(program.stop)
    return program, program.wait_for(r"unning on (http://[0-9.:]+)", program.log)[1]


def _pin_processors(running: ExitStack, servers: list[int]) -> None:
    """Pin the servers to one processor and this process to another, if there are two."""
    all_of_them = os.sched_getaffinity(0)
    if len(all_of_them) < 2:
        return
    first, second, *_ = sorted(all_of_them)
    os.sched_setaffinity(0, {first})
    running.callback(os.sched_setaffinity, 0, all_of_them)
    for pid in servers:
        os.sched_setaffinity(pid, {second})
