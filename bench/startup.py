"""Rows 4 and 5: from the daemon's start, and from its Chromium's end, to a browser that works.

Beside the same Chromium started without the daemon, until DevTools answers and a first page has run
its script: every program with a browser has to wait for that.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench.asking import JsonClient
from bench.bare import LOOK_EVERY, bare_chromium, devtools_answer
from bench.daemons import configure, daemon, free_port, start, wait_until
from bench.measure import Comparison, Goal, Plan, Row, Series, interleave, turns
from bench.recovering import HEALTHY
from bench.stage import connect
from smartlinkd.browser.chromium import FLAGS as DAEMONS_FLAGS
from smartlinkd.sandbox.batch import Origins
from tests.config_file import Tables
from tests.programs import sandbox

READY, BARE = "browserReady", "a bare Chromium and a first page"
ALONE, REPLACED = "the libraries alone", "a bare Chromium in the place of one that was killed"
GOAL: Final = Goal(at_most=1.25)
FIRST_ANSWER: Final = Goal(at_most=2.0)
"""For the time beside the libraries alone."""
FLAGS: Final = ("--headless", "--remote-debugging-port=0", "--no-first-run", "--disable-gpu")
"""Flags of a bare Chromium, as most programs start it. The floor's Chromium has the daemon's."""
PAGE: Final = "data:text/html,<script>document.title='it%20works'</script>"


def row_4(plan: Plan) -> Row:
    """Measure from the start of the process to its first answer, and to `browserReady`."""
    rounds = plan.rounds(20, 4)
    answers: list[float] = []
    found: dict[str, list[float]] = {READY: [], BARE: [], ALONE: []}
    with sandbox(plan.folder / "portal") as portal:
        for number, side in turns(list(found), rounds):
            plan.tell(f"round {number} of {rounds}: {side}")
            folder = plan.folder / f"{side} {number}".replace(" ", "-")
            if side == BARE:
                found[side].append(_bare_start(folder))
            elif side == ALONE:
                found[side].append(_libraries_start(folder))
            else:
                answered, ready = _daemon_start(folder, portal)
                answers.append(answered)
                found[side].append(ready)
            shutil.rmtree(folder, ignore_errors=True)
    floor = Series(ALONE, "s", found[ALONE])
    return Row(
        4,
        "from the process's start to the first answer and to a ready browser",
        [
            Comparison(
                "to browserReady",
                Series(READY, "s", found[READY]),
                Series(BARE, "s", found[BARE]),
                goal=GOAL,
                floor=floor,
            ),
            Comparison(
                "to the first HTTP answer",
                Series("smartlinkd", "s", answers),
                floor,
                goal=FIRST_ANSWER,
            ),
        ],
        [
            "programs and libraries are in the kernel's memory: they were started before",
            "the floor of both: a program that imports the libraries which the daemon imports "
            "(trio, hypercorn, Quart-Trio, trio-websocket, pydantic, httpx, PyJWT, pyotp, segno, "
            "argon2, cryptography, certifi, prometheus_client) and answers to /api/health with a "
            "constant; it has no browser",
        ],
    )


def row_5(plan: Plan) -> Row:
    """Measure from SIGKILL of Chromium until another one is ready."""
    with (
        sandbox(plan.folder / "portal") as portal,
        daemon(plan.folder / "daemon", portal, runner=["bench.recovering"]) as served,
        connect(served) as client,
    ):
        sides: dict[str, Callable[[], float]] = {
            READY: partial(_recovery, client, served.program.log),
            BARE: partial(_bare_start, plan.folder / "bare"),
            REPLACED: partial(_bare_replaced, plan.folder / "replaced"),
        }
        for measure in sides.values():
            measure()
        found = interleave(sides, plan.rounds(25, 3), plan.tell)
    ours, theirs, floor = (Series(side, "s", found[side]) for side in (READY, BARE, REPLACED))
    return Row(
        5,
        "from SIGKILL of Chromium to a ready browser",
        [Comparison("to browserReady again", ours, theirs, goal=GOAL, floor=floor)],
        [
            f"{HEALTHY:g} s count as healthy, shipped it is a minute: until then the daemon waits "
            "before it starts another one",
            "the floor: a bare Chromium with the daemon's flags is killed, and another one started "
            "at once",
        ],
    )


def _daemon_start(folder: Path, portal: Origins) -> tuple[float, float]:
    """Return the seconds to the first answer, and to a ready browser."""
    folder.mkdir()
    port = free_port()
    tables: Tables = {"server": {"bind": f"127.0.0.1:{port}"}}
    config = configure(folder, portal, tables)
    began = time.perf_counter()
    program = start(folder, config)
    try:
        wait_until(
            lambda: devtools_answer(port, "GET", "/api/health") is not None,
            program.log,
            every=LOOK_EVERY,
        )
        answered = time.perf_counter() - began
        wait_until(
            lambda: (devtools_answer(port, "GET", "/api/health") or {}).get("browserReady"),
            program.log,
            every=LOOK_EVERY,
        )
        return answered, time.perf_counter() - began
    finally:
        program.stop()


def _recovery(client: JsonClient, log: Path) -> float:
    """Return the seconds from the kill until another Chromium is ready."""
    before = _browser(client)
    time.sleep(2 * HEALTHY)  # a browser that lived for less is restarted after a wait
    began = time.perf_counter()
    os.kill(before["pid"], signal.SIGKILL)

    def is_back() -> bool:
        now = _browser(client)
        return bool(now["ready"]) and now["pid"] != before["pid"]

    wait_until(is_back, log, every=LOOK_EVERY)
    return time.perf_counter() - began


def _browser(client: JsonClient) -> Any:
    return client.get("/api/status")["browser"]


def _libraries_start(folder: Path) -> float:
    """Return the seconds until the server with the libraries alone answers."""
    folder.mkdir()
    port = free_port()
    log = folder / "log"
    words = [sys.executable, "-m", "bench.peers.health_alone", str(port)]
    began = time.perf_counter()
    with (
        log.open("wb") as errors,
        subprocess.Popen(words, stderr=errors, process_group=0) as process,
    ):
        try:
            wait_until(lambda: devtools_answer(port, "GET", "/api/health"), log, every=LOOK_EVERY)
            return time.perf_counter() - began
        finally:
            process.kill()


def _bare_start(folder: Path) -> float:
    """Return the seconds until a first page of a Chromium has run its script."""
    with _first_page(folder, FLAGS) as (_, took):
        return took


def _bare_replaced(folder: Path) -> float:
    """Return the same seconds from the kill of another Chromium, which is still ending."""
    folder.mkdir()
    with _first_page(folder / "first", DAEMONS_FLAGS) as (first, _):
        began = time.perf_counter()
        first.kill()
        first.wait()
        with _first_page(folder / "second", DAEMONS_FLAGS):
            took = time.perf_counter() - began
    shutil.rmtree(folder, ignore_errors=True)
    return took


@contextmanager
def _first_page(
    folder: Path, flags: Sequence[str]
) -> Iterator[tuple[subprocess.Popen[bytes], float]]:
    """Yield a Chromium, and the seconds until its first page had run its script."""
    with bare_chromium(folder, flags) as one:

        def titles() -> list[str]:
            return [page["title"] for page in devtools_answer(one.port, "GET", "/json") or []]

        devtools_answer(one.port, "PUT", f"/json/new?{PAGE}")
        wait_until(lambda: "it works" in titles(), one.log, every=LOOK_EVERY)
        yield one.process, time.perf_counter() - one.began
