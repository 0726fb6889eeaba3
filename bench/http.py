"""Row 6: plain questions a second, and how long the slowest hundredth of them takes.

Beside two trivial apps that answer the same bodies, one on what the daemon stands on (Quart-Trio on
hypercorn, as shipped) and one on what is fast (FastAPI on uvicorn, with uvloop and httptools). The
daemon's answers go through its guards and its supervisor's parts; theirs are constants.

Server and load have a processor each where there are two; who asks for conversions meanwhile is a
process of its own, on the load's. The questions: `/api/health`; one that wants a session token,
which both check (`/api/crews`); one for the cookie.
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
from bench.daemons import PATIENCE, Daemon, daemon, until
from bench.load import Answered, LoadFailed, Request, load
from bench.measure import Comparison, Goal, Plan, Row, Series, turns
from bench.peers.answers import new_token
from smartlinkd.sandbox.batch import Origins
from smartlinkd.sandbox.session import cookie_header
from tests.programs import Program, sandbox

OURS, QUART, FASTAPI, BUSY = "smartlinkd", "Quart-Trio as shipped", "FastAPI on uvicorn", "at work"
CREW: Final = "bench"
REFUSED: Final = 403
"""Of whoever has no token."""
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
"""Whether a question's answer is the one that is meant to be measured."""
CONNECTIONS: Final = 16
GOAL: Final = Goal(at_least=1.0)
GOAL_P99: Final = Goal(at_most=1.0)
AT_WORK: Final = 8
"""Executions of a crew that run while the daemon is asked; beside them it converts links."""
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
    """Measure it."""
    rounds, seconds = plan.rounds(7, 2), 0.4 if plan.quick else 1.0
    with _servers(plan.folder) as (served, portal, addresses):
        headers = {
            OURS: {"Authorization": f"Bearer {served.token}"},
            QUART: {"Authorization": f"Bearer {new_token()}"},
            FASTAPI: {"Authorization": f"Bearer {new_token()}"},
        }
        for side, url in addresses.items():
            check_answers(url, headers[side])
        found: dict[str, dict[str, list[Answered]]] = {}
        for question, path in QUESTIONS.items():
            requests = {side: Request(url + path, headers[side]) for side, url in addresses.items()}
            plan.tell(f"{question}, {rounds} rounds")
            found[question] = _measured(requests, rounds, seconds)
        plan.tell(f"health while it is at work, {rounds} rounds")
        busy = _while_at_work(served, portal, rounds, seconds)
    comparisons = [
        one for question, answered in found.items() for one in _compared(question, answered)
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


def _compared(question: str, answered: Mapping[str, list[Answered]]) -> Iterator[Comparison]:
    yield Comparison(f"{question} a second", *_rates(answered, OURS, QUART), "more", GOAL)
    yield Comparison(f"{question}, p99", *_p99s(answered, OURS, QUART), goal=GOAL_P99)
    yield Comparison(f"{question} a second", *_rates(answered, OURS, FASTAPI), "more")


def _rates(answered: Mapping[str, list[Answered]], ours: str, theirs: str) -> tuple[Series, Series]:
    first, second = (
        Series(side, "/s", [one.rate for one in answered[side]]) for side in (ours, theirs)
    )
    return first, second


def _p99s(answered: Mapping[str, list[Answered]], ours: str, theirs: str) -> tuple[Series, Series]:
    first, second = (
        Series(side, "s", [one.p99 for one in answered[side]]) for side in (ours, theirs)
    )
    return first, second


def check_answers(url: str, headers: Mapping[str, str]) -> None:
    """Raises `LoadFailed` unless a server answers each question as it is meant to, and lets in
    nobody without a token: what it does fast is to be what it is asked for."""
    with httpx.Client(base_url=url, timeout=PATIENCE, trust_env=False) as http:
        if (status := http.get(QUESTIONS["login-protected"]).status_code) != REFUSED:
            raise LoadFailed(f"{url}: {status} without a token")
        for question, path in QUESTIONS.items():
            answer = http.get(path, headers=headers)
            if answer.status_code != 200 or not AS_MEANT[question](answer.json()):
                raise LoadFailed(f"{url}: {question}: {answer.status_code}")


def _measured(
    requests: Mapping[str, Request], rounds: int, seconds: float
) -> dict[str, list[Answered]]:
    found: dict[str, list[Answered]] = {side: [] for side in requests}
    for request in requests.values():
        load([request], connections=CONNECTIONS, seconds=seconds / 2)  # warm up
    for _, side in turns(list(requests), rounds):
        found[side].append(load([requests[side]], connections=CONNECTIONS, seconds=seconds))
    return found


def _while_at_work(
    served: Daemon, portal: Origins, rounds: int, seconds: float
) -> dict[str, list[Answered]]:
    """The daemon at rest and at work, in turns."""
    request = Request(f"{served.url}/api/health")
    found: dict[str, list[Answered]] = {OURS: [], BUSY: []}
    for number, side in turns([OURS, BUSY], rounds):
        with _work(served, portal, number) if side == BUSY else ExitStack():
            found[side].append(load([request], connections=CONNECTIONS, seconds=seconds))
    return found


@contextmanager
def _work(served: Daemon, portal: Origins, number: int) -> Iterator[None]:
    """Crews that talk, and conversions one after the other."""
    token = served.crew_token(CREW)
    with served.client() as http:
        http.headers["Authorization"] = f"Bearer {token}"
        ids = [
            http.post(f"/crews/{CREW}/kickoff", json={"inputs": {}}).json()["kickoff_id"]
            for _ in range(AT_WORK)
        ]

        def state(one: str) -> str:
            return str(http.get(f"/crews/{CREW}/status/{one}").json()["state"])

        def begun(one: str) -> bool:
            return state(one) != "PENDING"

        for one in ids:
            until(partial(begun, one), served.program.log)
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
    """All three, the load on one processor and they on the other."""
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
        _apart(running, [program.process.pid for program in programs.values()])
        yield served, portal, {OURS: served.url, QUART: quart[1], FASTAPI: fastapi[1]}


def _peer(running: ExitStack, folder: Path, module: str, words: list[str]) -> tuple[Program, str]:
    folder.mkdir()
    program = Program(module, *words, folder=folder, log=folder / "log")
    running.callback(program.stop)
    return program, program.wait_for(r"unning on (http://[0-9.:]+)", program.log)[1]


def _apart(running: ExitStack, servers: list[int]) -> None:
    """Give the servers a processor, and us another one, where there are two."""
    all_of_them = os.sched_getaffinity(0)
    if len(all_of_them) < 2:
        return
    first, second, *_ = sorted(all_of_them)
    os.sched_setaffinity(0, {first})
    running.callback(os.sched_setaffinity, 0, all_of_them)
    for pid in servers:
        os.sched_setaffinity(pid, {second})
