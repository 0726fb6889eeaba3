"""Fake threads: a thread's function runs in the trio thread, so a mock clock can be used.

As with real threads, a call can be cancelled only before it starts, other tasks run meanwhile, and
a limiter bounds the number of calls. `test_contract_threads.py` compares the two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import outcome
import pytest
import trio

R = TypeVar("R")

MEANWHILE = 3
"""Checkpoints while a thread starts, and while it ends."""


async def run_in_place(
    function: Callable[..., R],
    *args: object,
    limiter: trio.CapacityLimiter | None = None,
    abandon_on_cancel: bool = False,
) -> R:
    """Run `function` as `trio.to_thread.run_sync` does, but in the trio thread."""
    await trio.lowlevel.checkpoint_if_cancelled()
    async with limiter or trio.to_thread.current_default_thread_limiter():
        with trio.CancelScope(shield=True):
            await _others_run()  # the thread starts
            result = outcome.capture(function, *args)
            await _others_run()  # the thread ends
    return result.unwrap()


async def _others_run() -> None:
    for _ in range(MEANWHILE):
        await trio.lowlevel.checkpoint()


def threads_in_place(patch: pytest.MonkeyPatch) -> None:
    """Replace `trio.to_thread.run_sync`: no threads are started from now on."""
    patch.setattr(trio.to_thread, "run_sync", run_in_place)
