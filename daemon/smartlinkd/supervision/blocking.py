"""Actors whose work blocks: a thread does it, and may do several waiting calls at once.

A thread's visit and its write to the disk cost more than most of the work. So the journal's calls
share a visit and a transaction: databases call this a group commit. If a shared visit fails,
nothing of it was done, and each call is repeated in a visit of its own, so only the faulty call
fails. docs/decisions/003-actor-calls.md tells what was rejected.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NoReturn, TypeVar

import outcome
import trio

from smartlinkd.errors import Refused
from smartlinkd.supervision.actor import A, Call, Queue
from smartlinkd.threads import on_thread

logger = logging.getLogger(__name__)

R = TypeVar("R")

Work = Callable[[A], object]
Together = Callable[[A, Sequence[Work[A]]], Sequence[object]]
"""Does the works in order, or the first few of them, and returns their results.

If it raises, nothing was changed."""


class BlockingMailbox(Queue[A]):
    """The mailbox of an actor whose work blocks and is done on a thread.

    It guarantees what `Queue` does, but started work is not cancelled: when its caller has gone
    the work is done and its result dropped.
    """

    async def ask(self, work: Callable[[A], R]) -> R:
        """Have the actor do `work(state)`, and return its result.

        Raises:
            Overloaded: the mailbox is full.
            ActorRestarting: the actor ended while it worked on the call.
            ActorGone: the actor has ended with its supervisor.
            Refused: whatever kind of it the work raises.
        """
        return await self._ask(Call(self.name, work))

    async def serve(
        self, state: A, together: Together[A] | None = None, *, most: int = 1
    ) -> NoReturn:
        """Answer calls on `state`, in order and at most `most` in one visit, until cancelled.

        Without `together` each call has a visit of its own. A cancellation waits for the thread.
        """
        self._gone = None
        thread = trio.CapacityLimiter(1)
        while True:
            await self._answer_next(state, together, most, thread)

    async def _answer_next(
        self, state: A, together: Together[A] | None, most: int, thread: trio.CapacityLimiter
    ) -> None:
        """Answer up to `most` calls. A method of its own, so that no local keeps their results."""
        waiting = [await self._next(), *self._drain(most - 1)]
        try:
            while waiting:
                waiting = [call for call in waiting if not call.withdrawn]
                done = await _do_together(waiting, state, together, thread)
                del waiting[:done]
                while waiting and not done:
                    self.heartbeat.touch()
                    await _do_alone(waiting.pop(0), state, thread)
        finally:
            self._put_back(waiting)


async def _do_together(
    calls: Sequence[Call[A, object]],
    state: A,
    together: Together[A] | None,
    thread: trio.CapacityLimiter,
) -> int:
    """Do the works in one visit. Return how many were done; 0 if each has to be done alone."""
    if together is None or len(calls) < 2:
        return 0
    works = [call.do for call in calls]
    try:
        found = await on_thread(together, state, works, limiter=thread)
    except Exception as fault:  # noqa: BLE001 - it is raised again, for the call whose it is
        # Its kind alone: the text of an error of the disk may repeat what is on it.
        logger.debug("%d are done one by one: %s", len(calls), type(fault).__name__)
        return 0
    for call, value in zip(calls, found, strict=False):
        call.settle(outcome.Value(value))
    return len(found)


async def _do_alone(call: Call[A, object], state: A, thread: trio.CapacityLimiter) -> None:
    """Do one call's work. Its `Refused` is the caller's; any other error ends the actor."""
    if call.withdrawn:
        return
    try:
        value = await on_thread(call.do, state, limiter=thread)
    except Refused as refusal:
        call.settle(outcome.Error(refusal))
    else:
        call.settle(outcome.Value(value))
    finally:
        call.abandon()
