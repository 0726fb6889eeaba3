"""SIGKILL: no worker outlives the daemon, and the next one knows every execution."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from smartlinkd.store.model import Status

if TYPE_CHECKING:
    from tests.crews.executor.conftest import MakeCrew, OpenHouse

# Kicks off 24 executions, 4 of which run, tells their ids, and waits for what comes.
DAEMON = r"""
import sys, trio
from datetime import timedelta
from pathlib import Path
from pydantic import SecretBytes
from smartlinkd.crews.catalog.catalog import Catalog
from smartlinkd.crews.model import CrewUser, Crew, Kickoff
from smartlinkd.crews.executor import Executor
from smartlinkd.crews.worker import WorkerSettings
from smartlinkd.store.actor import Store
from smartlinkd.store.model import Retention

folder = Path(sys.argv[1])
worker = '''
echo '{"type":"started"}' >&3
echo $$ > "$0/$SMARTLINKD_EXECUTION"
trap '' TERM
sleep 1000
'''
crew = Crew(
    "c", WorkerSettings(("/bin/sh", "-c", worker, str(folder / "pids")), {}, 2**28), (),
    4, 100, 1000, 1000, "fail", (), (),
)
store = Store(
    folder / "journal.db", key=SecretBytes(b"k" * 32), retention=Retention(timedelta(days=1), 1000)
)
executor = Executor(
    Catalog({"c": crew}), store, tools={}, runs=folder / "runs", queued=lambda: None
)

async def main():
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        await nursery.start(executor.run)
        for _ in range(24):
            new = Kickoff({})
            print(await executor.kickoff(CrewUser("c"), new, idempotency_key=None, body=None))
        print("all", flush=True)

trio.run(main)
"""


@pytest.fixture
def left(folder: Path) -> list[str]:
    """The executions that a daemon has left when it was killed; none of its workers lives on."""
    pids = folder / "pids"
    pids.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", DAEMON, str(folder)], stdout=subprocess.PIPE, text=True
    ) as daemon:
        assert daemon.stdout is not None
        ids = [line.rstrip() for line in iter(daemon.stdout.readline, "all\n")]
        _until(lambda: len(_numbers(pids)) == 4)
        daemon.kill()
    _until(lambda: not any(map(_lives, _numbers(pids))))
    return ids


@pytest.mark.parametrize("on_restart", ["fail", "rerun"])
async def test_a_kill_with_24_executions_in_hand(
    left: list[str], open_house: OpenHouse, crew: MakeCrew, trivial: str, on_restart: str
) -> None:
    again = crew("c", "/bin/sh", "-c", trivial, max_running=4, on_restart=on_restart)
    house = await open_house(again)
    ran = [await house.end_of(each) for each in left]
    first = Status.INTERRUPTED if on_restart == "fail" else Status.COMPLETED
    assert [each.status for each in ran] == [first] * 4 + [Status.COMPLETED] * 20


def _until(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.005)


def _numbers(folder: Path) -> list[int]:
    texts = [file.read_text(encoding="ascii") for file in folder.iterdir()]
    return [int(text) for text in texts if text.endswith("\n")]


def _lives(process: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(process, 0)
        return True
    return False
