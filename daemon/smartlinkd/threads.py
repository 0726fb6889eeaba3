"""Blocking work on a thread.

When a limit on tasks (systemd's `TasksMax=`, or the kernel's) is reached, no thread can be started.
The caller is refused then, and nothing was begun: an actor that ended by it would need a thread to
start again. Threads kept in reserve would cost a stack each, and could be used up as well.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, TypeVar

import trio

from smartlinkd.errors import Unavailable

logger = logging.getLogger(__name__)

R = TypeVar("R")

RETRY_AFTER_S: Final = 5

_CANNOT_START: Final = "can't start new thread"
"""The text of CPython's RuntimeError; the error has no class of its own."""


class NoThread(Unavailable):
    """No thread could be started: nothing was done."""


async def on_thread(
    work: Callable[..., R],
    *arguments: object,
    limiter: trio.CapacityLimiter | None = None,
    abandon_on_cancel: bool = False,
) -> R:
    """Call `work` on a thread, as `trio.to_thread.run_sync` does.

    Raises:
        NoThread: no thread can be started.
        Exception: what `work` raises.
    """
    try:
        return await trio.to_thread.run_sync(
            work, *arguments, limiter=limiter, abandon_on_cancel=abandon_on_cancel
        )
    except RuntimeError as fault:
        if str(fault) != _CANNOT_START:
            raise
        logger.warning("no thread can be started: TasksMax, or a limit of the kernel's, is reached")
        raise NoThread(
            "the daemon cannot start a thread: as many tasks run as the system lets it have; "
            "try again shortly",
            retry_after=RETRY_AFTER_S,
        ) from None
