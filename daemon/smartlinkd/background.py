"""Tasks that run for the length of a block, without a nursery's grouping of the block's error.

The problem: a resource with a life of its own (a process whose pipes are read, a connection whose
frames are dispatched) is best given out by a context manager with a nursery inside. But a nursery
wraps every error that leaves the block in an exception group, so each caller of such a resource
would have to look for its own error in groups, one layer for each resource it holds.

The choice: the nursery is hidden. The block's error leaves bare; so does a background task's.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def background(*tasks: Callable[[], Awaitable[object]]) -> AsyncIterator[None]:
    """Run `tasks` beside the block. They are cancelled, and have ended, when it is left.

    A task that raises cancels the block, and its error leaves in the place of the block's
    `Cancelled`. An error of the block's own goes first, then. Several errors of tasks, or errors
    that come together with a cancellation from outside, leave as the group they are.
    """
    error: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            for task in tasks:
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
