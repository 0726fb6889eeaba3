"""Actors whose work blocks: a thread does it, for all who wait at the same time.

The problem: what blocks (a disk, say) has to be done on a thread, one thing after the other. To go
there and back takes longer than most of such work, and whoever comes meanwhile waits for it.

The choice: all requests that wait when the thread is free are taken there in one visit, where they
can share what is slow about them: a transaction's way to the disk (what databases call a group
commit). Each request is still whole and its asker's alone. When one of a visit fails, nothing of it
was done, and all are done again, each in a visit of its own: so who is at fault is the only one to
hear of it, and what an asker is told is what it would have been told alone.

What is promised is what a `Mailbox` promises, but that started work is not cancelled: who gives up
in the midst is answered nothing, and the work is done.

Rejected: a part of the visit that can be undone for each request (more of the same transaction, for
what is rare), and a thread of one's own with a queue that both sides lock (its wake-up costs what
trio's does).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NoReturn, TypeVar

import outcome
import trio

from daemon.errors import Refused
from daemon.supervision.actor import A, Queue, Request

logger = logging.getLogger(__name__)

R = TypeVar("R")

Work = Callable[[A], object]
Together = Callable[[A, Sequence[Work[A]]], Sequence[object]]
"""Does all of that in its order, and returns what each of them returns; or raises, and nothing was
changed."""


class BlockingMailbox(Queue[A]):
    """That of an actor whose work blocks, and is done on a thread."""

    async def ask(self, work: Callable[[A], R]) -> R:
        """Have the actor do `work(state)` and return what it returns.

        Raises `Overloaded`, `ActorRestarting`, `ActorGone`, or the `Refused` of the work.
        """
        return await self._ask(Request(self.name, work))

    async def serve(self, state: A, together: Together[A], *, most: int) -> NoReturn:
        """Answer requests on `state`, in the order asked and at most `most` `together`, until
        cancelled. Then, too, the thread is waited for.
        """
        self._gone = None
        thread = trio.CapacityLimiter(1)
        while True:
            taken = [await self._next(), *self._drain(most - 1)]
            try:
                waiting = [request for request in taken if not request.withdrawn]
                if len(waiting) < 2 or not await _done_together(waiting, state, together, thread):
                    for request in waiting:
                        self.pulse.beat()
                        await _do_alone(request, state, thread)
            finally:
                for request in taken:
                    request.abandon()


async def _done_together(
    requests: Sequence[Request[A, object]],
    state: A,
    together: Together[A],
    thread: trio.CapacityLimiter,
) -> bool:
    """Whether all are answered; else none was done."""
    works = [request.do for request in requests]
    try:
        found = await trio.to_thread.run_sync(together, state, works, limiter=thread)
    except Exception as fault:  # noqa: BLE001 - it comes again, to the one whose it is
        # Its kind alone: the text of an error of the disk may repeat what is on it.
        logger.debug("%d are done one by one: %s", len(requests), type(fault).__name__)
        return False
    for request, value in zip(requests, found, strict=True):
        request.settle(outcome.Value(value))
    return True


async def _do_alone(request: Request[A, object], state: A, thread: trio.CapacityLimiter) -> None:
    """What is not the asker's own error leaves here as a crash."""
    if request.withdrawn:
        return
    try:
        value = await trio.to_thread.run_sync(request.do, state, limiter=thread)
    except Refused as refusal:
        request.settle(outcome.Error(refusal))
    else:
        request.settle(outcome.Value(value))
