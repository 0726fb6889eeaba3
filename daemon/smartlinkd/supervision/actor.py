"""Actors: one task owns a piece of state, everyone else asks.

The problem: several tasks want the same state (a cookie, a browser, a table of throttled
addresses), each `await` is a place where another task may run, the asker may give up at any of
them, and the owner may crash at any of them. Locks around shared objects make each of these the
business of every caller.

The choice: a `Mailbox`, which is a bounded memory channel of `Request`s. A request is a method of
the actor's state, bound to its arguments but not to an instance: whichever incarnation of the
actor takes it runs it on its own state. So typed methods need no message classes beside them, and
a request that waits survives a restart of the actor.

    class Counter:                              # the state: only its own task touches it
        def __init__(self) -> None:
            self.total = 0

        async def add(self, n: int) -> int:
            self.total += n
            return self.total

    mailbox = Mailbox[Counter]("counter", size=8)
    nursery.start_soon(mailbox.serve, Counter())
    total = await mailbox.ask(Counter.add, 5)   # mypy knows it is an int

What only looks at the state and waits for nothing is no async method, and is answered by `glance`:
without a task and two switches of tasks, which cost more than most such looks. Nobody else runs
between two checkpoints, so it is as if the actor had answered, just now.

An actor whose work blocks, on a disk say, has another kind of mailbox: see `blocking.py`.

What is promised:

* A full mailbox is an immediate `Overloaded`, never an endless wait.
* Deadlines are the asker's own cancel scopes, and include the wait in the mailbox.
* An asker that goes away takes its request with it: unstarted it never runs, started it is
  cancelled. One that is already cancelled asks nothing.
* `smartlinkd.errors.Refused` is the asker's error; the actor lives on. Any other exception ends the
  incarnation, its asker gets `ActorRestarting`, and the supervisor decides.
* What is logged while a request is worked on is logged as part of the asker's work.
* The loop's `pulse` beats whenever it comes round with a hand free, also when nobody asks.
* No asker hangs: whatever ends the actor settles the requests it had in hand; closing the mailbox
  settles the ones that wait.

Rejected: a reply over a memory channel (the asker hangs for ever when the actor dies between
receive and reply), and shared objects behind a `trio.Lock` (a cancelled holder leaves the state
half-changed for the next one).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from typing import Concatenate, Generic, NoReturn, ParamSpec, TypeVar, cast

import outcome
import trio

from smartlinkd.errors import Refused, Unavailable, leaves
from smartlinkd.logs.context import working_for, works
from smartlinkd.supervision.pulse import Pulse

A = TypeVar("A")
P = ParamSpec("P")
R = TypeVar("R")


class Overloaded(Unavailable):
    """The actor's mailbox is full: nothing was queued."""


class ActorRestarting(Unavailable):
    """The actor ended while it had this request in hand."""


class ActorGone(Unavailable):
    """The actor has ended for good."""


class Request(Generic[A, R]):
    """One question to an actor, and the one-shot slot for its answer."""

    __slots__ = ("_answered", "_outcome", "_scope", "_work", "_works", "actor", "withdrawn")

    def __init__(self, actor: str, work: Callable[[A], Awaitable[R] | R]) -> None:
        """`work` is a coroutine function for `answer`, and none for `do`."""
        self.actor = actor
        self.withdrawn = False
        self._work = work
        self._works = works()
        self._scope = trio.CancelScope()
        self._answered = trio.Event()
        self._outcome: outcome.Outcome[R] | None = None

    def settle(self, result: outcome.Outcome[R]) -> None:
        """Give the answer. Only the first one counts, so it is safe while being cancelled."""
        if self._outcome is None:
            self._outcome = result
            self._answered.set()

    def withdraw(self) -> None:
        """The asker has gone: do not start, or stop. Nothing happens when it is answered."""
        self.withdrawn = True
        self._scope.cancel()

    async def wait(self) -> R:
        """The answer, or the error that is the answer."""
        await self._answered.wait()
        assert self._outcome is not None  # noqa: S101 - set before the event, for the type checker
        return self._outcome.unwrap()

    def do(self, state: A) -> R:
        """What the work returns or raises, which blocks."""
        with working_for(self._works):
            return cast("R", self._work(state))

    async def answer(self, state: A) -> None:
        """Run the work on `state`. What is not the asker's own error leaves here as a crash."""
        if self.withdrawn:
            return
        try:
            with self._scope, working_for(self._works):
                self.settle(outcome.Value(await cast("Awaitable[R]", self._work(state))))
        except Refused as refusal:
            self.settle(outcome.Error(refusal))
        except BaseExceptionGroup as group:
            refusals, rest = group.split(Refused)
            if refusals is None:
                raise
            self.settle(outcome.Error(next(leaves(refusals))))
            if rest is not None:
                raise rest from None
        finally:
            self.abandon()

    def abandon(self) -> None:
        """The actor crashed, or was cancelled, with this in hand. Nothing when it is answered."""
        self.settle(
            outcome.Error(
                ActorRestarting(
                    f"the {self.actor} part of the daemon restarted while it worked on this; "
                    "try again",
                    retry_after=1,
                )
            )
        )


class Queue(Generic[A]):
    """The bounded queue in front of an actor whose state is an `A`. Outlives its incarnations.

    `size` is the number of requests that may wait; those being worked on come on top.
    """

    def __init__(self, name: str, *, size: int) -> None:
        self.name = name
        self.pulse = Pulse(self._come_round)
        self._send, self._receive = trio.open_memory_channel[Request[A, object]](size)
        self._gone: str | None = None

    @property
    def waiting(self) -> int:
        """How many requests wait to be taken."""
        return self._receive.statistics().current_buffer_used

    def close(self, why: str) -> None:
        """No incarnation is to come: fail all that wait, and all that ask before one serves."""
        self._gone = why
        for request in self._drain():
            request.settle(outcome.Error(self._gone_error()))

    async def _ask(self, request: Request[A, R]) -> R:
        await trio.lowlevel.checkpoint_if_cancelled()
        self._post(request)
        try:
            return await request.wait()
        finally:
            request.withdraw()

    async def _next(self) -> Request[A, object]:
        self.pulse.beat()
        return await self._receive.receive()

    def _come_round(self) -> None:
        # While it waits for a request the queue is empty, so this takes nobody's place.
        if self._receive.statistics().tasks_waiting_receive:
            nothing: Request[A, object] = Request(self.name, lambda _: None)
            nothing.withdraw()
            self._send.send_nowait(nothing)

    def _post(self, request: Request[A, R]) -> None:
        if self._gone is not None:
            raise self._gone_error()
        queued = cast("Request[A, object]", request)  # what it answers is the asker's business
        try:
            self._send.send_nowait(queued)
        except trio.WouldBlock:
            self._drop_withdrawn()
            try:
                self._send.send_nowait(queued)
            except trio.WouldBlock:
                raise Overloaded(
                    f"the {self.name} part of the daemon has a full queue; try again shortly",
                    retry_after=1,
                ) from None

    def _drop_withdrawn(self) -> None:
        """Make room: requests whose askers have gone keep their place until somebody looks."""
        for request in self._drain():
            if not request.withdrawn:
                self._send.send_nowait(request)

    def _put_back(self, requests: Sequence[Request[A, object]]) -> None:
        """In front of those that wait: none of them was begun. The last may find no room."""
        if requests:
            for request in [*requests, *self._drain()]:
                try:
                    self._send.send_nowait(request)
                except trio.WouldBlock:
                    request.abandon()

    def _drain(self, most: float = inf) -> list[Request[A, object]]:
        drained: list[Request[A, object]] = []
        with suppress(trio.WouldBlock):
            while len(drained) < most:
                drained.append(self._receive.receive_nowait())
        return drained

    def _gone_error(self) -> ActorGone:
        return ActorGone(
            f"the {self.name} part of the daemon has ended: {self._gone}", retry_after=5
        )


class Mailbox(Queue[A]):
    """That of an actor who works in its own task, or in several of its own."""

    def __init__(self, name: str, *, size: int) -> None:
        super().__init__(name, size=size)
        self._state: A | None = None  # while an incarnation serves

    async def ask(
        self,
        method: Callable[Concatenate[A, P], Awaitable[R]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """Have the actor run `method(state, *args, **kwargs)` and return what it returns.

        Raises `Overloaded`, `ActorRestarting`, `ActorGone`, or the `Refused` of the method.
        """
        return await self._ask(Request(self.name, lambda state: method(state, *args, **kwargs)))

    async def glance(
        self, method: Callable[Concatenate[A, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """What `method(state, *args, **kwargs)` returns, which changes nothing.

        At once while the actor serves, also when its mailbox is full. Without an incarnation it is
        asked like everything else; so it is, too, when it fails by a fault, which is the actor's to
        end by. Raises what `ask` does.
        """

        async def asked(state: A) -> R:
            return method(state, *args, **kwargs)

        await trio.lowlevel.checkpoint_if_cancelled()
        if self._state is not None and self._gone is None:
            try:
                return method(self._state, *args, **kwargs)
            except Refused:
                raise
            except Exception:  # noqa: BLE001 - raised again by the actor, on the same state
                return await self.ask(asked)
        return await self.ask(asked)

    async def serve(self, state: A, *, at_once: int = 1) -> NoReturn:
        """Answer requests on `state`, at most `at_once` at the same time, until cancelled.

        Opens a closed mailbox: a supervisor that is itself restarted runs its children again.
        """
        self._gone = None
        self._state = state
        try:
            if at_once == 1:
                while True:
                    await (await self._next()).answer(state)
            hands = trio.Semaphore(at_once)
            async with trio.open_nursery() as nursery:
                while True:
                    await hands.acquire()
                    request = await self._next()
                    nursery.start_soon(partial(self._answer_and_release, request, state, hands))
        finally:
            self._state = None

    async def _answer_and_release(
        self, request: Request[A, object], state: A, hands: trio.Semaphore
    ) -> None:
        try:
            await request.answer(state)
        finally:
            hands.release()
