"""Actors: one task owns a piece of state, and every other task sends it calls.

A call is a method of the actor's state with its arguments. A call is not bound to an instance of
the state, so a call that waits survives a restart of the actor. See
docs/decisions/003-actor-calls.md.
`Mailbox` is for actors that work in their own task, `blocking.py` for those that work on a thread.
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
from smartlinkd.logs.context import bind_log_contexts, current_log_contexts
from smartlinkd.supervision.heartbeat import Heartbeat

A = TypeVar("A")
P = ParamSpec("P")
R = TypeVar("R")


class Overloaded(Unavailable):
    """The actor's mailbox is full. The call was not queued."""


class ActorRestarting(Unavailable):
    """The actor ended while it worked on the call. The call may have had effects."""


class ActorGone(Unavailable):
    """The actor has ended with its supervisor, and comes back only with it."""


class Call(Generic[A, R]):
    """One call of an actor's method, and its result, which is set once."""

    def __init__(self, actor: str, work: Callable[[A], Awaitable[R] | R]) -> None:
        """Wrap `work`: a coroutine function for `answer`, a plain function for `do`."""
        self.actor = actor
        self.withdrawn = False
        self._work = work
        self._log_contexts = current_log_contexts()
        self._scope = trio.CancelScope()
        self._answered = trio.Event()
        self._outcome: outcome.Outcome[R] | None = None

    def settle(self, result: outcome.Outcome[R]) -> None:
        """Set the result and wake the caller. A second result is ignored."""
        if self._outcome is None:
            self._outcome = result
            self._answered.set()

    def withdraw(self) -> None:
        """Cancel the call because its caller has gone. A call that has its result ignores this."""
        self.withdrawn = True
        self._scope.cancel()

    async def wait(self) -> R:
        """Return the result. Raises the error that the method or the actor ended with."""
        await self._answered.wait()
        assert self._outcome is not None  # noqa: S101 - set before the event, for the type checker
        return self._outcome.unwrap()

    def do(self, state: A) -> R:
        """Run blocking work on `state`, and return or raise what it does."""
        with bind_log_contexts(self._log_contexts):
            return cast("R", self._work(state))

    async def answer(self, state: A) -> None:
        """Run the work on `state` and settle the call.

        A `Refused` is the caller's error and settles the call. Any other exception leaves here and
        ends the actor's instance; the caller gets `ActorRestarting`.
        """
        if self.withdrawn:
            return
        try:
            with self._scope, bind_log_contexts(self._log_contexts):
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
        """Settle the call with `ActorRestarting`, unless it has its result."""
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
    """The bounded queue of calls to an actor with state `A`. It outlives the actor's instances.

    Args:
        size: how many calls may wait. Calls that the actor works on are not counted.

    Guarantees:
        A full queue raises `Overloaded` at once. Deadlines are the caller's own cancel scopes and
        include the wait in the queue. When a caller is cancelled its call never starts, or is
        cancelled. No caller waits for ever: the end of the actor settles the calls it worked on,
        and `close` settles those that wait. Log records of a call carry the caller's log context.
    """

    def __init__(self, name: str, *, size: int) -> None:
        self.name = name
        self.heartbeat = Heartbeat(self._come_round)
        self._send, self._receive = trio.open_memory_channel[Call[A, object]](size)
        self._gone: str | None = None

    @property
    def waiting(self) -> int:
        """The number of calls that wait."""
        return self._receive.statistics().current_buffer_used

    def close(self, why: str) -> None:
        """Fail the waiting calls, and new ones until an instance serves, with `ActorGone`."""
        self._gone = why
        for call in self._drain():
            call.settle(outcome.Error(self._gone_error()))

    async def _ask(self, call: Call[A, R]) -> R:
        await trio.lowlevel.checkpoint_if_cancelled()
        self._post(call)
        try:
            return await call.wait()
        finally:
            call.withdraw()

    async def _next(self) -> Call[A, object]:
        self.heartbeat.touch()
        return await self._receive.receive()

    def _come_round(self) -> None:
        # While it waits for a call the queue is empty, so this takes nobody's place.
        if self._receive.statistics().tasks_waiting_receive:
            nothing: Call[A, object] = Call(self.name, lambda _: None)
            nothing.withdraw()
            self._send.send_nowait(nothing)

    def _post(self, call: Call[A, R]) -> None:
        if self._gone is not None:
            raise self._gone_error()
        queued = cast("Call[A, object]", call)  # what it answers is the asker's business
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
        """Make room: a withdrawn call keeps its place in the channel until it is received."""
        for call in self._drain():
            if not call.withdrawn:
                self._send.send_nowait(call)

    def _put_back(self, calls: Sequence[Call[A, object]]) -> None:
        """Queue calls that were not begun in front of the others. The last may find no room."""
        if calls:
            for call in [*calls, *self._drain()]:
                try:
                    self._send.send_nowait(call)
                except trio.WouldBlock:
                    call.abandon()

    def _drain(self, most: float = inf) -> list[Call[A, object]]:
        drained: list[Call[A, object]] = []
        with suppress(trio.WouldBlock):
            while len(drained) < most:
                drained.append(self._receive.receive_nowait())
        return drained

    def _gone_error(self) -> ActorGone:
        return ActorGone(
            f"the {self.name} part of the daemon has ended: {self._gone}", retry_after=5
        )


class Mailbox(Queue[A]):
    """The mailbox of an actor that works in its own task, or in several tasks of its own.

    class Counter:  # the state; only the actor's task touches it
        def __init__(self) -> None:
            self.total = 0

        async def add(self, n: int) -> int:
            self.total += n
            return self.total

    mailbox = Mailbox[Counter]("counter", size=8)
    nursery.start_soon(mailbox.serve, Counter())
    total = await mailbox.ask(Counter.add, 5)
    """

    def __init__(self, name: str, *, size: int) -> None:
        super().__init__(name, size=size)
        self._state: A | None = None  # while an instance serves

    async def ask(
        self,
        method: Callable[Concatenate[A, P], Awaitable[R]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """Have the actor run `method(state, *args, **kwargs)`, and return its result.

        Raises:
            Overloaded: the mailbox is full.
            ActorRestarting: the actor ended while it worked on the call.
            ActorGone: the actor has ended with its supervisor.
            Refused: whatever kind of it the method raises.
        """
        return await self._ask(Call(self.name, lambda state: method(state, *args, **kwargs)))

    async def peek(
        self, method: Callable[Concatenate[A, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Return `method(state, *args, **kwargs)`, which only reads the state and does not wait.

        While the actor serves this calls the method directly, also when the mailbox is full: no
        other task runs between two checkpoints, so the actor could not answer otherwise. Without
        an instance, or when the method fails by a bug, the call goes through the mailbox.

        Raises:
            The same as `ask`.
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
        """Answer calls on `state`, at most `at_once` at the same time, until cancelled.

        This opens a closed mailbox: a supervisor that is restarted runs its children again.
        """
        self._gone = None
        self._state = state
        try:
            if at_once == 1:
                while True:
                    await (await self._next()).answer(state)
            slots = trio.Semaphore(at_once)
            async with trio.open_nursery() as nursery:
                while True:
                    await slots.acquire()
                    call = await self._next()
                    nursery.start_soon(partial(self._answer_and_release, call, state, slots))
        finally:
            self._state = None

    async def _answer_and_release(
        self, call: Call[A, object], state: A, slots: trio.Semaphore
    ) -> None:
        try:
            await call.answer(state)
        finally:
            slots.release()
