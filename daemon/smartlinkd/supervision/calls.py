"""Calls to actors, for callers that cannot wait forever or cannot be refused.

A mailbox keeps its calls while its actor restarts, which may take half a minute after crashes in a
row. Clients are promised a 503 instead, and try again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

import trio

from smartlinkd.errors import Unavailable

T = TypeVar("T")

ACTOR_TIMEOUT_S: Final = 8.0
"""More than the waits before an actor's first four restarts, which add up to 7.5 s at most."""

Wait = Callable[[Unavailable, int], Awaitable[None]]
"""Waits before the next attempt, given the refusal and the number of attempts so far."""


@contextmanager
def actor_deadline(seconds: float = ACTOR_TIMEOUT_S) -> Iterator[None]:
    """Cancel the block after `seconds`. Raises `Unavailable` if it was not done by then."""
    with trio.move_on_after(seconds) as scope:
        yield
    if scope.cancelled_caught:
        raise Unavailable(
            "a part of the daemon is being restarted, or waits for the disk; "
            "try again in a few seconds",
            retry_after=5,
        )


async def retry_until_success(attempt: Callable[[], Awaitable[T]], wait: Wait) -> T:
    """Await `attempt()` until it raises no `Unavailable`, with `wait` between two attempts.

    Raises:
        Exception: any other error of `attempt`, and what `wait` raises.
    """
    attempts = 0
    while True:
        try:
            return await attempt()
        except Unavailable as refusal:
            attempts += 1
            await wait(refusal, attempts)
