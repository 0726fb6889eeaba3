"""For tests whose subject is that nothing is left: they may not leave it for a moment either.

`leaks.py` gives everything that is about to end the time to do so.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import NamedTuple

import pytest
import trio

from tests.hygiene.look import Thing, descriptors
from tests.hygiene.processes import descendants


class Held(NamedTuple):
    """The open descriptors, and the processes below this one, zombies included."""

    descriptors: set[Thing]
    processes: set[int]


def held() -> Held:
    return Held(set(descriptors()), descendants())


def check_held(before: Held) -> None:
    """No descriptor has come or gone, and no process has come.

    One may have gone, or come below one that was there: the browsers and daemons of other tests,
    which live below this process too, end what they need no longer, and start what they need.
    """
    assert set(descriptors()) == before.descriptors
    assert not descendants(besides=before.processes)


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """The test must leave no descriptor and no process."""
    before = held()
    yield
    check_held(before)


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], Awaitable[None]]:
    """`await until(condition)`: for what other processes do, which tells nobody when it is done."""

    async def wait(condition: Callable[[], bool]) -> None:
        with trio.fail_after(20):
            while not condition():  # noqa: ASYNC110 - nothing of ours sets an event
                await trio.sleep(0.002)

    return wait
