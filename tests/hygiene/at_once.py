"""For tests whose subject is that nothing is left: they may not leave it for a moment either.

`leaks.py` gives everything that is about to end the time to do so.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator

import pytest
import trio

from tests.hygiene.look import Thing, descriptors
from tests.hygiene.processes import descendants


def held() -> tuple[set[Thing], set[int]]:
    """The open descriptors, and the processes below this one, zombies included."""
    return set(descriptors()), descendants()


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """The test must leave no descriptor and no process."""
    before = held()
    yield
    assert held() == before


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], Awaitable[None]]:
    """`await until(condition)`: for what other processes do, which tells nobody when it is done."""

    async def wait(condition: Callable[[], bool]) -> None:
        with trio.fail_after(5):
            while not condition():  # noqa: ASYNC110 - nothing of ours sets an event
                await trio.sleep(0.002)

    return wait
