"""Whether a process tree has use for a processor: real ones, looked at."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from daemon.processes import activity
from daemon.processes.activity import Activity
from daemon.processes.guarded import Guarded, guarded
from tests.hygiene.folder import FOLDER
from tests.processes.family import sleeping

PATIENCE = 20.0
WORKS = f"{sys.executable} -I -S -c 'while True: pass'"
WAITS = "sleep 1000 & wait"


@asynccontextmanager
async def shell(script: str) -> AsyncIterator[Guarded]:
    words = ("/bin/sh", "-c", script)
    async with guarded(words, environment={}, working_folder=FOLDER) as process:
        yield process


async def becomes_idle(pid: int) -> None:
    """Its start takes a while, and a look or two."""
    looked = Activity(pid)
    with trio.fail_after(PATIENCE):
        while not looked.is_idle():  # noqa: ASYNC110 - nothing of ours sets an event
            await trio.sleep(0.05)


async def stays_at_work(pid: int, looks: int = 10) -> None:
    looked = Activity(pid)
    for _ in range(looks):
        assert not looked.is_idle()
        await trio.sleep(0.05)


async def test_one_that_sleeps_is_idle_at_the_second_look() -> None:
    async with sleeping() as process:
        await becomes_idle(process.pid)
        again = Activity(process.pid)
        assert not again.is_idle()
        assert again.is_idle()


async def test_one_that_works_is_not() -> None:
    async with shell(f"exec {WORKS}") as process:
        await stays_at_work(process.pid)


async def test_one_that_waits_for_a_program_of_its_own_that_works_is_not() -> None:
    async with shell(f"{WORKS} & wait") as process:
        await stays_at_work(process.pid)


async def test_one_that_works_by_short_programs_is_not() -> None:
    async with shell("while true; do /bin/true; done") as process:
        await stays_at_work(process.pid)


async def test_one_that_waits_for_a_program_that_waits_is_idle() -> None:
    async with shell(WAITS) as process:
        await becomes_idle(process.pid)


async def test_one_of_a_larger_tree_than_a_look_takes_in_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with shell(WAITS) as process:
        await becomes_idle(process.pid)  # both of its processes are there
        monkeypatch.setattr(activity, "LARGEST", 1)
        await stays_at_work(process.pid, looks=3)


async def test_one_that_has_ended_is_idle() -> None:
    async with shell("exit 0") as process:
        await process.wait()
        await becomes_idle(process.pid)
