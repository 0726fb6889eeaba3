"""Nurseries whose errors leave one at a time, and background tasks for the length of a block.

A nursery wraps each error that leaves it in an exception group (trio, "strict exception groups").
A resource that has a nursery inside would make each caller look for its own error in that group.
So `background` and `sole_error` raise the one error bare.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def background(task: Callable[[], Awaitable[object]]) -> AsyncIterator[None]:
    """Run `task` beside the block. Leaving the block cancels it and waits for its end.

    A failure of the task cancels the block.

    Raises:
        Exception: the block's own error if it has one, else (also if it was cancelled) the task's.
    """
    error: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(task)
            try:
                yield
            except BaseException as of_block:  # noqa: BLE001 - kept for a moment, raised below
                error = of_block
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        if error is None or isinstance(error, trio.Cancelled):
            error = group.exceptions[0] if len(group.exceptions) == 1 else group
    # Outside of the handler, so that the error keeps its own cause and context.
    try:
        if error is not None:
            raise error
    finally:
        del error  # with its traceback it would keep this frame, and what is in it, alive


@asynccontextmanager
async def sole_error() -> AsyncIterator[None]:
    """Raise the only error of an exception group bare. A group of several passes unchanged."""
    try:
        yield
    except BaseExceptionGroup as group:
        if len(group.exceptions) > 1:
            raise
        error = group.exceptions[0]
        raise error from error.__cause__  # `from None` would lose it


async def cancel_at(event: trio.Event, scope: trio.CancelScope) -> None:
    """Cancel a scope when something happens."""
    await event.wait()
    scope.cancel()
