"""Threads, played: what would be done in one is done in place, so that a mock clock can be used.

What a task sees of a thread stays: it can be cancelled before the thread starts and not any more
from then on, others run while it waits, a limiter lets so many through. That this is so of real
ones too, is what `test_contract_threads.py` holds it to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import outcome
import pytest
import trio

R = TypeVar("R")

MEANWHILE = 3
"""Steps that others can take while a thread begins, and while it ends."""


async def run_in_place(
    function: Callable[..., R],
    *args: object,
    limiter: trio.CapacityLimiter | None = None,
    abandon_on_cancel: bool = False,
) -> R:
    """`trio.to_thread.run_sync`, with as much of its interface as the daemon uses but for
    look-ups of names, which no test with a mock clock makes."""
    await trio.lowlevel.checkpoint_if_cancelled()
    async with limiter or trio.to_thread.current_default_thread_limiter():
        with trio.CancelScope(shield=True):
            await _others_run()  # the thread has started
            result = outcome.capture(function, *args)
            await _others_run()  # and has ended; that is on its way to us
    return result.unwrap()


async def _others_run() -> None:
    for _ in range(MEANWHILE):
        await trio.lowlevel.checkpoint()


def threads_in_place(patch: pytest.MonkeyPatch) -> None:
    """From now on there are no threads."""
    patch.setattr(trio.to_thread, "run_sync", run_in_place)
