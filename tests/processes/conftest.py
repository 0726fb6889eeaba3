"""What must not be left over by anything that starts processes."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import trio


def descriptors() -> set[str]:
    return {entry.name for entry in os.scandir("/proc/self/fd")}


def children() -> set[str]:
    lists = Path("/proc/self/task").glob("*/children")
    return {pid for one in lists for pid in one.read_text(encoding="ascii").split()}


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """The test must leave no descriptor and no child, zombies included."""
    before = descriptors(), children()
    yield
    assert (descriptors(), children()) == before


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that any user may pass through and look into."""
    folder = Path(tempfile.mkdtemp(prefix="smartlinkd-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], Awaitable[None]]:
    """`await until(condition)`: for what other processes do, which tells nobody when it is done."""

    async def wait(condition: Callable[[], bool]) -> None:
        with trio.fail_after(5):
            while not condition():  # noqa: ASYNC110 - nothing of ours sets an event
                await trio.sleep(0.002)

    return wait
