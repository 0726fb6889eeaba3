"""Tests that leave something behind, each one thing, and some that do not. They are no part of the
test run: `test_leaks.py` runs them, and knows what has to be said of each.

Each name says what becomes of it: `test_leaves_…` is to fail, `test_clean_…` to pass.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio

from tests.hygiene import leaks

leaks.PATIENCE = 0.2

_kept: list[object] = []
"""What is to be left has to be kept from Python, which ends much by itself."""
_never = threading.Event()


def test_clean_at_first() -> None:
    pass


def test_leaves_a_descriptor() -> None:
    os.open("/dev/zero", os.O_RDONLY)


def test_leaves_a_socket() -> None:
    _kept.append(socket.socket())


def test_leaves_a_thread() -> None:
    def wait() -> None:
        _never.wait()

    threading.Thread(target=wait, name="the thread", daemon=True).start()


async def test_leaves_a_thread_of_trios() -> None:
    with trio.move_on_after(0.01):
        await trio.to_thread.run_sync(_never.wait, abandon_on_cancel=True)


async def test_leaves_a_system_task() -> None:
    trio.lowlevel.spawn_system_task(trio.sleep_forever, name="the task")


def test_leaves_a_child() -> None:
    _kept.append(subprocess.Popen(["sleep", "1001"]))


def test_leaves_a_zombie() -> None:
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    _kept.append(child)


def test_leaves_an_orphan() -> None:
    subprocess.run(["sh", "-c", "setsid sleep 1002 & exit"], check=True)


def test_leaves_an_orphan_with_its_environment_cleaned() -> None:
    folder = tempfile.mkdtemp()
    subprocess.run(["sh", "-c", "setsid sleep 1003 & exit"], cwd=folder, env={}, check=True)


def test_leaves_a_folder() -> None:
    tempfile.mkdtemp(prefix="the-folder-")


def test_leaves_a_variable() -> None:
    os.environ["THE_VARIABLE"] = "1"


def test_leaves_a_variable_out() -> None:
    del os.environ["THE_VARIABLE"]


def test_leaves_another_working_folder(tmp_path: Path) -> None:
    os.chdir(tmp_path)


def test_leaves_a_signal_handler() -> None:
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)


def test_leaves_a_level() -> None:
    logging.getLogger("the.logger").setLevel(logging.DEBUG)


def test_leaves_a_handler() -> None:
    logging.getLogger().addHandler(logging.StreamHandler())


def test_leaves_logging_off() -> None:
    logging.disable(logging.ERROR)


def test_leaves_a_failure_and_a_folder() -> None:
    tempfile.mkdtemp(prefix="left-by-a-failure-")
    raise AssertionError("the failure")


@pytest.fixture
def careless() -> Iterator[None]:
    yield
    tempfile.mkdtemp(prefix="left-by-a-fixture-")
    raise AssertionError("the fixture's failure")


def test_leaves_it_to_a_fixture(careless: None) -> None:
    pass


def test_leaves_a_coroutine() -> None:
    trio.sleep(1)  # type: ignore[unused-coroutine]  # noqa: ASYNC105


def test_leaves_a_file_open() -> None:
    Path("/dev/zero").open("rb")  # noqa: SIM115


def test_leaves_a_file_open_in_a_circle() -> None:
    circle: list[object] = [Path("/dev/zero").open("rb")]  # noqa: SIM115
    circle.append(circle)


def test_leaves_an_error_that_nobody_can_catch() -> None:
    class Thing:
        def __del__(self) -> None:
            raise ValueError("from its end")

    Thing()


def test_leaves_an_error_in_a_thread() -> None:
    def fail() -> None:
        raise ValueError("from the thread")

    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()


def test_clean_thread_that_ends_soon() -> None:
    threading.Thread(target=time.sleep, args=(0.05,)).start()


async def test_clean_thread_that_trio_keeps() -> None:
    await trio.to_thread.run_sync(time.sleep, 0)


def test_clean_circle() -> None:
    gc.collect()
    circle: list[object] = [socket.socket()]
    circle.append(circle)
    circle[0].close()  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def holder() -> Iterator[Callable[[], None]]:
    """Holds things as long as the module lasts."""
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(["sleep", "1004"], cwd=folder) as child,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("THE_HOLDER", "1")
        patch.delenv("HOME")
        yield lambda: None
        child.kill()


def test_clean_user_of_a_holder(holder: Callable[[], None]) -> None:
    holder()


def test_clean_user_of_a_holder_that_is_there(request: pytest.FixtureRequest) -> None:
    request.getfixturevalue("holder")()


def test_leaves_a_folder_while_another_is_held(holder: Callable[[], None]) -> None:
    tempfile.mkdtemp(prefix="beside-the-holders-")


@pytest.fixture(scope="module")
def keeper() -> int:
    """Opens what nobody closes."""
    return os.open("/dev/null", os.O_RDONLY)


def test_clean_user_of_a_keeper(keeper: int) -> None:
    assert keeper


def test_clean_coroutine_in_a_circle() -> None:
    """Not clean, but only the end of the module shows it."""
    circle: list[object] = [trio.sleep(1)]  # noqa: ASYNC105
    circle.append(circle)


def test_leaves_it_to_the_last(keeper: int) -> None:
    assert keeper
