"""Slots for calls that make an actor wait: one fewer than the actor's concurrency.

So the actor can always answer a call that does not wait. A caller without a slot is refused at
once, since a caller that waited would take the actor's last place.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import trio

from smartlinkd.errors import Unavailable


@contextmanager
def slot(slots: trio.Semaphore, too_many: str) -> Iterator[None]:
    """Hold one of `slots` in the block.

    Args:
        too_many: what there is too much of, for the error's text.

    Raises:
        Unavailable: no slot is free.
    """
    try:
        slots.acquire_nowait()
    except trio.WouldBlock:
        raise Unavailable(
            f"too many {too_many} at once; try again shortly", retry_after=1
        ) from None
    try:
        yield
    finally:
        slots.release()
