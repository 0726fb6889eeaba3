"""The retry loop for calls to actors that refuse for a while."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from smartlinkd.errors import Unavailable

T = TypeVar("T")

Wait = Callable[[Unavailable, int], Awaitable[None]]
"""Waits before the next attempt, given the refusal and the number of attempts so far."""


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
