"""Places, of which there are so many, for what is done at the same time.

For what makes an actor wait there are fewer than it has hands, so that one is always left. Who
finds no `place` is told to come again, and does not wait for one: whoever waited would have a hand,
and a question that can be answered at once needs it. Who may wait for one is let in by `take`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import trio

from daemon.errors import Unavailable


@contextmanager
def place(places: trio.Semaphore, too_many: str) -> Iterator[None]:
    """Hold one of `places` in the body. Raises `Unavailable`: there are `too_many` of these."""
    try:
        places.acquire_nowait()
    except trio.WouldBlock:
        raise Unavailable(
            f"too many {too_many} at once; try again shortly", retry_after=1
        ) from None
    try:
        yield
    finally:
        places.release()


async def take(places: trio.Semaphore) -> None:
    """Take one of `places`, as soon as there is one. Without a turn of the loop when there is one
    now, where `Semaphore.acquire` always takes one; whoever is cancelled takes none.
    """
    await trio.lowlevel.checkpoint_if_cancelled()
    try:
        places.acquire_nowait()
    except trio.WouldBlock:
        await places.acquire()
