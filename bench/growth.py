"""Row 9: answers and conversions of daemons that have stored 10, 1000 and 100 000 of everything.

Stored are executions, remembered links and products. The daemons run side by side and are asked the
same in turns. Each is compared with the one that has stored the least.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count, islice
from statistics import median
from typing import Final

import httpx

from bench.asking import JsonClient
from bench.daemons import Daemon, daemon, link
from bench.kept import execution_id, store_executions
from bench.load import Request, load
from bench.measure import Comparison, Goal, Plan, Row, Series, interleave
from bench.program import SH
from bench.stage import check_converted
from smartlinkd.sandbox.batch import Origins
from smartlinkd.sandbox.session import cookie_header
from tests.config_file import Tables
from tests.programs import sandbox

STORED: Final = (10, 1000, 100_000)
CREW: Final = "bench"
GOAL: Final = Goal(at_most=1.2)
CONVERSIONS: Final = 5
EXECUTIONS: Final = 2
"""Executions that run one after the other in each round."""
STATUSES: Final = 100
"""Executions whose status is asked for in each round."""
STRIDE: Final = 7919
"""Distance from one execution to the next, so that they are spread over the file. The number is
prime, so none is asked for twice before all others were."""
PATIENCE: Final = 60.0


def row_9(plan: Plan) -> Row:
    comparisons: list[Comparison] = []
    with _side_by_side(plan) as stored:
        for name, measure in _requests().items():
            comparisons += _compare_with_smallest(plan, name, measure, stored)
        comparisons += _compare_with_smallest(
            plan, "status of one execution after another", _consecutive_statuses, stored
        )
    return Row(
        9,
        "whether it gets slower by what is stored",
        comparisons,
        [
            "beside the same with the fewest stored executions, remembered links and products",
            "status of an execution: of one and the same; of one after another, over the file",
        ],
    )


def _compare_with_smallest(
    plan: Plan,
    name: str,
    measure: Callable[[_FilledDaemon], float],
    stored: Mapping[int, _FilledDaemon],
) -> Iterator[Comparison]:
    sides = {str(number): partial(measure, one) for number, one in stored.items()}
    for warm_up in sides.values():
        warm_up()
    plan.tell(name)
    found = interleave(sides, plan.rounds(25, 2))
    few, *many = stored
    for number in many:
        yield _comparison(name, found, number, few)


@dataclass
class _FilledDaemon:
    """A daemon that has stored `number` executions, links and products."""

    served: Daemon
    portal: Origins
    token: str
    number: int
    items: Iterator[int] = field(default_factory=partial(count, 1000))
    places: Iterator[int] = field(default_factory=count)

    def request(self, path: str, status: int) -> Request:
        token = self.token if path.startswith("/crews/") else self.served.token
        headers = {"Authorization": f"Bearer {token}"}
        return Request(self.served.url + path, headers, status=status)


def _requests() -> Mapping[str, Callable[[_FilledDaemon], float]]:
    """Return the measured requests by name; each function returns the seconds of one."""
    return {
        "a conversion": _conversion,
        "an execution, kickoff to result": _execution,
        "status of an execution": lambda one: _status_p50(
            one, f"/crews/{CREW}/status/{execution_id(1 + one.number // 2)}"
        ),
        "status of one that there is not": lambda one: _status_p50(
            one, f"/crews/{CREW}/status/{execution_id(1 + 2 * one.number)}", 404
        ),
        "list of executions": lambda one: _status_p50(one, f"/crews/{CREW}/executions?limit=10"),
        "status of the daemon": lambda one: _status_p50(one, "/api/status"),
    }


def _status_p50(one: _FilledDaemon, path: str, status: int = 200) -> float:
    return load([one.request(path, status)], connections=1, seconds=0.25).p50


def _consecutive_statuses(one: _FilledDaemon) -> float:
    taken = []
    with JsonClient(one.served.url, {"Authorization": f"Bearer {one.token}"}) as client:
        for place in islice(one.places, STATUSES):
            path = f"/crews/{CREW}/status/{execution_id(1 + place * STRIDE % one.number)}"
            began = time.perf_counter()
            found = client.get(path)
            taken.append(time.perf_counter() - began)
            if len(found["tasks"]) != 1:
                raise RuntimeError(f"not as it was stored: {found}")
    return median(taken)


def _conversion(one: _FilledDaemon) -> float:
    with one.served.client() as http:
        http.get("/livez")
        began = time.perf_counter()
        for _ in range(CONVERSIONS):
            text = link(one.portal, next(one.items))
            answer = http.post("/api/convert", json={"links": [text]}).raise_for_status()
            check_converted([text], answer.json()["mapping"])
        return (time.perf_counter() - began) / CONVERSIONS


def _execution(one: _FilledDaemon) -> float:
    headers = {"Authorization": f"Bearer {one.token}"}
    base = f"{one.served.url}/crews/{CREW}"
    with httpx.Client(base_url=base, headers=headers, timeout=PATIENCE, trust_env=False) as http:
        began = time.perf_counter()
        for _ in range(EXECUTIONS):
            made = http.post("/kickoff", json={"inputs": {}}).raise_for_status().json()
            while True:
                found = http.get(f"/status/{made['kickoff_id']}?wait=30").json()
                if found["state"] == "SUCCESS":
                    break
                if found["state"] == "FAILED":
                    raise RuntimeError(f"an execution failed: {found}")
        return (time.perf_counter() - began) / EXECUTIONS


def _comparison(name: str, found: Mapping[str, list[float]], number: int, few: int) -> Comparison:
    ours = Series(f"{number} stored", "s", found[str(number)])
    theirs = Series(f"{few} stored", "s", found[str(few)])
    return Comparison(f"{name}, {number} stored", ours, theirs, goal=GOAL)


@contextmanager
def _side_by_side(plan: Plan) -> Iterator[dict[int, _FilledDaemon]]:
    crew = {"name": CREW, "runner": "command", "command": SH}
    most = 2 * max(STORED)
    with ExitStack() as running:
        portal = running.enter_context(sandbox(plan.folder / "portal"))
        stored = {}
        for number in STORED:
            plan.tell(f"a daemon with {number} stored")
            state = plan.folder / f"state-{number}"
            store_executions(state, CREW, number)
            tables: Tables = {
                "state": {"directory": str(state)},
                "journal": {"retention_count": most},
                "links": {"remember_max": most},
                "products": {"remember_max": most},
                "crews": [crew],
            }
            served = running.enter_context(
                daemon(
                    plan.folder / f"daemon-{number}",
                    portal,
                    tables,
                    runner=["bench.remembering", str(number)],
                )
            )
            cookie = {"cookie": cookie_header(str(700_000_000 + number))}
            served.ask("POST", "/api/sync-cookie", cookie)
            stored[number] = _FilledDaemon(served, portal, served.crew_token(CREW), number)
        yield stored
