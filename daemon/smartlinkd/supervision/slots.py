"""Slots for what makes an actor wait: fewer than it has hands, so that one is always left.

Who finds none free is told to come again, and does not wait for one: whoever waited would have a
hand, and a question that can be answered at once needs it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import trio

from smartlinkd.errors import Unavailable


@contextmanager
def slot(slots: trio.Semaphore, too_many: str) -> Iterator[None]:
    """Hold one of `slots` in the body. Raises `Unavailable`: there are `too_many` of these."""
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
