"""Fixtures for tests of cleanup: everything must be gone when the test ends.

`leaks.py`, which checks all tests, waits for what is about to end.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import NamedTuple

import pytest
import trio

from tests.hygiene.look import Thing, descriptors
from tests.hygiene.processes import descendants


class OpenResources(NamedTuple):
    """The open descriptors, and the process ids below this process, zombies included."""

    descriptors: set[Thing]
    processes: set[int]


def open_resources() -> OpenResources:
    return OpenResources(set(descriptors()), descendants())


def check_unchanged(before: OpenResources) -> None:
    """Check that no descriptor was opened or closed, and that no process was started.

    A process may have ended, or have started children: the browsers and daemons of other tests are
    below this process, too.
    """
    assert set(descriptors()) == before.descriptors
    assert not descendants(besides=before.processes)


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """Fail if the test leaves a descriptor or a process."""
    before = open_resources()
    yield
    check_unchanged(before)


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], Awaitable[None]]:
    """A function that polls until the condition is true; fails after 20 seconds."""

    async def wait(condition: Callable[[], bool]) -> None:
        with trio.fail_after(20):
            while not condition():  # noqa: ASYNC110 - other processes set no event
                await trio.sleep(0.002)

    return wait
