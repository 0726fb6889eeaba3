"""Whether a process tree has use for a processor: real ones, looked at."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from smartlinkd.processes import activity
from smartlinkd.processes.activity import Activity
from smartlinkd.processes.guarded import Guarded, guarded
from smartlinkd.processes.usage import threads
from tests.hygiene.folder import FOLDER

PATIENCE = 20.0
PYTHON = f"{sys.executable} -I -S -c"
WORKS = f"{PYTHON} 'while True: pass'"
WORKED = 0.3
HAS_WORKED = f"""
import time
while time.process_time() < {WORKED}: pass
"""
WAITS = "sleep 1000 & wait"
BY_THREAD = """
import subprocess, threading
def work():
    {}
one = threading.Thread(target=work)
one.start()
one.join()
"""


@asynccontextmanager
async def running(*words: str) -> AsyncIterator[Guarded]:
    async with guarded(words, environment={}, working_folder=FOLDER) as process:
        yield process


def shell(script: str) -> tuple[str, ...]:
    return ("/bin/sh", "-c", script)


def python(program: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", "-c", program)


async def becomes_idle(process: Guarded) -> None:
    """Its start takes a while, and a look or two."""
    looked = Activity(process.guardian)
    with trio.fail_after(PATIENCE):
        while not looked.is_idle():  # noqa: ASYNC110 - nothing of ours sets an event
            await trio.sleep(0.05)


async def stays_at_work(process: Guarded, looks: int = 10) -> None:
    looked = Activity(process.guardian)
    for _ in range(looks):
        assert not looked.is_idle()
        await trio.sleep(0.05)


@pytest.mark.parametrize(
    "words",
    [
        shell("exec sleep 1000"),
        shell(WAITS),
        shell("exit 0"),
        # The kernel quotes nothing of the name, which comes before the state.
        python("import ctypes, time; ctypes.CDLL(None).prctl(15, b'a) R 1 1'); time.sleep(1000)"),
    ],
    ids=["sleeps", "waits for one that does", "has ended", "has a misleading name"],
)
async def test_one_that_waits_is_idle(words: tuple[str, ...]) -> None:
    async with running(*words) as process:
        await becomes_idle(process)


@pytest.mark.parametrize(
    "words",
    [
        shell(f"exec {WORKS}"),
        shell(f"{WORKS} & wait"),
        shell(f"({WORKS} &); exec sleep 1000"),
        shell("while true; do /bin/true; done"),
        python(BY_THREAD.format("while True: pass")),
        python(BY_THREAD.format(f"subprocess.call({WORKS!r}, shell=True)")),
    ],
    ids=["itself", "a child", "an orphan", "short programs", "a thread", "a thread's child"],
)
async def test_one_that_works_is_not(words: tuple[str, ...]) -> None:
    async with running(*words) as process:
        await stays_at_work(process)


async def test_it_is_its_threads_that_are_at_work() -> None:
    async with running(*python(BY_THREAD.format("while True: pass"))) as process:
        with trio.fail_after(PATIENCE):
            while len(threads(process.pid)) == 1:  # noqa: ASYNC110 - nothing of ours sets an event
                await trio.sleep(0.01)
        assert all(activity._used(process.guardian) is None for _ in range(10))


async def test_the_first_look_tells_nothing() -> None:
    async with running(*shell(WAITS)) as process:
        await becomes_idle(process)
        again = Activity(process.guardian)
        assert not again.is_idle()
        assert again.is_idle()


async def test_one_of_a_larger_tree_than_a_look_takes_in_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running(*shell(WAITS)) as process:
        await becomes_idle(process)  # both of its processes are there
        monkeypatch.setattr(activity, "LARGEST", 1)
        await stays_at_work(process, looks=3)


@pytest.mark.parametrize(
    "words",
    [python(f"{HAS_WORKED}\ntime.sleep(1000)"), shell(f"{PYTHON} '{HAS_WORKED}'; sleep 1000")],
    ids=["itself", "by a program that has ended"],
)
async def test_the_time_it_has_used_is_counted(words: tuple[str, ...]) -> None:
    async with running(*words) as process:
        await becomes_idle(process)
        used = activity._used(process.guardian)
        assert used is not None
        assert 0.9 * WORKED <= used < WORKED + 1.0  # it is counted in whole ticks


@pytest.fixture
def uses(monkeypatch: pytest.MonkeyPatch) -> list[float | None]:
    """What each look finds that has been used, None for one that is at work."""
    found: list[float | None] = []
    looks: Iterator[float | None] = iter(found)
    monkeypatch.setattr(activity, "_used", lambda _: next(looks))
    return found


@pytest.mark.parametrize(
    ("used", "idle"),
    [
        ([7.0, 7.0], True),
        ([7.0, 7.04], True),
        ([7.0, 7.06], False),
        ([7.0, 7.5, 7.52], True),
        ([7.0, 6.0], False),  # what has ended took its time along
        ([7.0, None], False),
        ([None, 7.0], False),
        ([None, 7.0, 7.0], True),
    ],
)
async def test_next_to_none_is_a_share_of_the_time_since_the_last_look(
    mock_clock: MockClock, uses: list[float | None], used: list[float | None], *, idle: bool
) -> None:
    uses += used
    looked = Activity(1)
    mock_clock.jump(100.0)
    for _ in used[1:]:
        looked.is_idle()
        mock_clock.jump(1.0)
    assert looked.is_idle() is idle
