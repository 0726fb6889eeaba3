"""Actors whose work blocks: a thread does it, for all who wait at the same time.

The problem: what blocks (a disk, say) has to be done on a thread, one thing after the other. To go
there and back takes longer than most of such work, and whoever comes meanwhile waits for it.

The choice: all requests that wait when the thread is free are taken there in one visit, where they
can share what is slow about them: a transaction's way to the disk (what databases call a group
commit). Each request is still whole and its asker's alone. When one of a visit fails, nothing of it
was done, and all are done again, each in a visit of its own: so who is at fault is the only one to
hear of it, and what an asker is told is what it would have been told alone. When its fault ends the
actor, those behind it wait for the next incarnation.

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

from smartlinkd.errors import Refused
from smartlinkd.supervision.actor import A, Queue, Request
from smartlinkd.threads import on_thread

logger = logging.getLogger(__name__)

R = TypeVar("R")

Work = Callable[[A], object]
Together = Callable[[A, Sequence[Work[A]]], Sequence[object]]
"""Does all of that in its order, or as many of the first as are enough for one visit, and returns
what each of them returns; or raises, and nothing was changed."""


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
            await self._answer_next(state, together, most, thread)

    async def _answer_next(
        self, state: A, together: Together[A], most: int, thread: trio.CapacityLimiter
    ) -> None:
        """All that wait. A call of its own: while it waits again, nothing holds their answers."""
        waiting = [await self._next(), *self._drain(most - 1)]
        try:
            while waiting:
                waiting = [request for request in waiting if not request.withdrawn]
                done = await _do_together(waiting, state, together, thread)
                del waiting[:done]
                while waiting and not done:
                    self.pulse.beat()
                    await _do_alone(waiting.pop(0), state, thread)
        finally:
            self._put_back(waiting)


async def _do_together(
    requests: Sequence[Request[A, object]],
    state: A,
    together: Together[A],
    thread: trio.CapacityLimiter,
) -> int:
    """How many of the first were done, and are answered. None: each is to be done alone."""
    if len(requests) < 2:
        return 0
    works = [request.do for request in requests]
    try:
        found = await on_thread(together, state, works, limiter=thread)
    except Exception as fault:  # noqa: BLE001 - it comes again, to the one whose it is
        # Its kind alone: the text of an error of the disk may repeat what is on it.
        logger.debug("%d are done one by one: %s", len(requests), type(fault).__name__)
        return 0
    for request, value in zip(requests, found, strict=False):
        request.settle(outcome.Value(value))
    return len(found)


async def _do_alone(request: Request[A, object], state: A, thread: trio.CapacityLimiter) -> None:
    """What is not the asker's own error leaves here as a crash."""
    if request.withdrawn:
        return
    try:
        value = await on_thread(request.do, state, limiter=thread)
    except Refused as refusal:
        request.settle(outcome.Error(refusal))
    else:
        request.settle(outcome.Value(value))
    finally:
        request.abandon()
