"""Work that blocks, done on a thread; and what it means that there can be no more of them.

The problem: a service manager's bound on tasks, or the kernel's own, may be reached, by what a
crew's worker starts for example. Then no thread can be started, which passes. But whoever ends by
it needs a thread to begin again, a part that cannot be kept up ends the daemon, and with the
journal ends all that crews are working on.

The choice: who asked for the work is refused, as by any part that has too much to do, and nothing
was begun. Rejected: threads that are kept ready, which are a stack each for what hardly ever
happens, and of which one more may still be needed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, TypeVar

import trio

from smartlinkd.errors import Unavailable

logger = logging.getLogger(__name__)

R = TypeVar("R")

RETRY_AFTER: Final = 5
"""Seconds."""

_NONE_TO_BE_HAD: Final = "can't start new thread"
"""Python's words for it; the error has no kind of its own."""


class NoThread(Unavailable):
    """There is no thread to be had for it: nothing was done."""


async def on_thread(
    work: Callable[..., R],
    *arguments: object,
    limiter: trio.CapacityLimiter | None = None,
    abandon_on_cancel: bool = False,
) -> R:
    """`trio.to_thread.run_sync`. Raises `NoThread`, and what `work` raises."""
    try:
        return await trio.to_thread.run_sync(
            work, *arguments, limiter=limiter, abandon_on_cancel=abandon_on_cancel
        )
    except RuntimeError as fault:
        if str(fault) != _NONE_TO_BE_HAD:
            raise
        logger.warning("no thread can be started: TasksMax, or a limit of the kernel's, is reached")
        raise NoThread(
            "the daemon cannot start a thread: as many tasks run as the system lets it have; "
            "try again shortly",
            retry_after=RETRY_AFTER,
        ) from None
