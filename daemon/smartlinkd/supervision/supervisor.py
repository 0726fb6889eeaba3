"""A supervisor: starts children in order, restarts those that fail, stops them in reverse.

The problem: in a nursery one child's exception cancels all the others. That is right for the parts
of one task and wrong for parts that should outlive each other's bugs. OTP answered this: each child
has a spec that says when it is restarted, and a supervisor that cannot keep its children up ends
itself, so that the next level (here: the process, then the service manager) decides.

The choice: one task, `Supervisor.run`, owns all decisions. Each child runs in a task of its own,
inside a cancel scope of its own, and does nothing at its end but report. So there is one place
where restarts happen and no lock, and everything is tested on a mock clock.

A supervisor has the shape of a child (`run(task_status)`, `stop`), so supervisors nest. Each time
it is run its children start over, and the waits with them, but not the count of restarts: with as
many new tries each time it would give up so seldom that the supervisor above never counts too many
restarts within its own period, and a child that always fails would end nothing.

Rejected: restarting inside the child's own task (a `while` around `run`), which is less code but
leaves nobody who could restart several together, or count over all of them.
"""

from __future__ import annotations

import logging
import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from math import inf

import trio

from smartlinkd.logs import Event, acting_as
from smartlinkd.supervision.child import Child, ChildSnapshot, ChildSpec, State
from smartlinkd.supervision.groups import describe, sole_error
from smartlinkd.supervision.policy import Backoff, Intensity, Restart, RestartWindow, Strategy
from smartlinkd.supervision.pulse import Pulse, Vital

logger = logging.getLogger(__name__)


class Escalated(Exception):  # noqa: N818 - OTP's word
    """A child could not be kept up, and everything was stopped in order."""


class Supervisor:
    """Keeps `specs` running by `strategy` until `stop()` is called or it has to give up.

    `chance` and `wall` are the randomness of the waits and the clock of the snapshots; all waits
    are on trio's clock.
    """

    def __init__(
        self,
        name: str,
        specs: Sequence[ChildSpec],
        *,
        strategy: Strategy = Strategy.ONE_FOR_ONE,
        backoff: Backoff = Backoff(),  # noqa: B008 - frozen
        intensity: Intensity = Intensity(),  # noqa: B008 - frozen
        chance: random.Random | None = None,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.name = name
        self._strategy = strategy
        self._backoff = backoff
        self._intensity = intensity
        self._chance = chance or random.Random()  # noqa: S311 - spreads waits, guards nothing
        self._wall = wall
        self._children = [Child(spec, wall()) for spec in specs]
        self._pulse = Pulse(self._look_again)
        self._vital: Vital | None = None
        self._window = RestartWindow(intensity)
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._stopping = False
        self._starting = trio.CancelScope()
        # What ended by itself since the last look, and the event that says there is something.
        self._ended: deque[tuple[Child, Exception | None]] = deque()
        self._news = trio.Event()
        self._ending = trio.Event()

    def stop(self) -> None:
        """Ask for an orderly end: `run` returns when all children have ended.

        A child that is just starting is cancelled. Before `run`, this makes it return at once.
        """
        self._stopping = True
        self._starting.cancel()
        self._news.set()

    @property
    def stopping(self) -> bool:
        """`stop()` was called, and `run` has not returned since."""
        return self._stopping

    def snapshot(self) -> list[ChildSnapshot]:
        """The children as they are now, in the order of their start."""
        return [
            ChildSnapshot(
                name=child.spec.name,
                state=child.state,
                since=child.since,
                restarts=child.restarts,
                last_error=child.last_error,
                next_retry=_seconds_until(child.retry_at),
            )
            for child in self._children
        ]

    @property
    def longest_end(self) -> float:
        """Seconds that an orderly end takes if every child uses up its grace."""
        return sum(child.spec.grace for child in self._children if child.spec.stop is not None)

    def allow(self, name: str, seconds: float) -> None:
        """Give a child so much grace from now on; never less than it had, which it may have
        promised to others."""
        (child,) = (each for each in self._children if each.spec.name == name)
        child.spec = replace(child.spec, grace=max(seconds, child.spec.grace))

    async def wait_ending(self) -> None:
        """Wait until all are being stopped, by request or because one cannot be kept up."""
        await self._ending.wait()

    def vitals(self) -> list[Vital]:
        """What has to show signs of life now: this, and those of its children that run.

        Not a child that is being started or stopped, has ended, or waits for its restart: that
        takes as long as its spec allows, and it is this supervisor that has to come round then.
        """
        if self._vital is None:
            return []
        return [self._vital, *(v for child in self._children for v in child.vitals())]

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Start all children in order, then keep them up.

        Raises `Escalated` when a child failed to start the first time, or was restarted too often;
        whatever was running has been stopped, in reverse order, by then.
        """
        now, task = trio.current_time(), trio.lowlevel.current_task()
        self._vital = Vital(self.name, self._pulse, since=now, busy=0.0, task=task)
        try:
            async with sole_error(), trio.open_nursery() as nursery:
                try:
                    await self._start_all(nursery)
                    task_status.started()
                    await self._keep_up(nursery)
                finally:
                    self._ending.set()
                    # When `run` itself was cancelled the children are cancelled too, and these
                    # waits end at once: there is nothing to be orderly about any more.
                    await self._stop_children(reversed(self._children))
        finally:
            for child in self._children:
                child.failures = 0
                child.retry_at = inf
                self._enter(child, State.DOWN)
                self._close_mailbox(child, "the daemon, or this part of it, is stopping")
            self._vital = None
            self._begin_anew()

    # Starting

    async def _start_all(self, nursery: trio.Nursery) -> None:
        for child in self._children:
            if self._stopping:
                return
            if self._base_has_ended():
                self._put_off(child)
                continue
            error = await self._start(nursery, child)
            if error is not None:
                raise Escalated(f"{child.spec.name} did not start: {describe(error)}") from error

    async def _start(self, nursery: trio.Nursery, child: Child) -> Exception | None:
        """Start one incarnation and wait until it serves; its error when it did not come so far.

        A start that was cut short is no error. By `stop()`: the child is down then. By the end of
        one that it depends on, and may be waiting for: it is due again, after that one.
        """
        self._pulse.beat(child.spec.start_timeout)
        child.retry_at = inf
        child.scope = trio.CancelScope()
        child.ended = trio.Event()
        self._enter(child, State.STARTING)
        try:
            with trio.move_on_after(child.spec.start_timeout) as self._starting:
                await nursery.start(self._incarnation, child)
                return None
        except Exception as error:  # noqa: BLE001 - whatever it is, it is why the child is down
            self._enter(child, State.DOWN)
            return error
        if self._base_has_ended():
            self._put_off(child)
            return None
        self._enter(child, State.DOWN)
        too_slow = trio.TooSlowError(f"did not serve within {child.spec.start_timeout:g} s")
        return None if self._stopping else too_slow

    async def _incarnation(self, child: Child, task_status: trio.TaskStatus[None]) -> None:
        """The life of one incarnation. Its error is `_start`'s before it serves, a report after."""
        status = _Serving(task_status, lambda: self._serves(child))
        child.task = trio.lowlevel.current_task()
        error: Exception | None = None
        try:
            with child.scope, acting_as(child.spec.name):
                await child.spec.run(status)
        except Exception as failure:
            if child.state is State.STARTING:
                raise
            error = failure
            self._tell(child, failure)
        except BaseExceptionGroup as group:
            # Errors beside a Cancelled or a KeyboardInterrupt, which goes on alone.
            failures, rest = group.split(Exception)
            if failures is None or rest is None:
                raise
            self._tell(child, failures)
            raise rest from None
        finally:
            child.ended.set()
        if child.state is State.RUNNING:
            if trio.current_time() - child.started_at >= self._backoff.healthy:
                child.failures = 0
            self._ended.append((child, error))
            self._news.set()
            if self._base_has_ended():
                self._starting.cancel()

    def _base_has_ended(self) -> bool:
        """Whether one has ended that whoever starts now depends on: it starts after it."""
        return self._strategy is Strategy.REST_FOR_ONE and bool(self._ended)

    def _put_off(self, child: Child) -> None:
        """Start it when what it depends on is there again."""
        child.retry_at = trio.current_time()
        self._enter(child, State.WAITING)

    def _tell(self, child: Child, error: Exception) -> None:
        # At once, and not when the report is read: that may be never, when all is stopping.
        child.last_error = describe(error)
        if child.state is State.RUNNING:
            logger.error("%s failed", child.spec.name, exc_info=error, extra=_failed(child))
        else:
            logger.warning("%s failed while stopping", child.spec.name, exc_info=error)

    def _serves(self, child: Child) -> None:
        child.started_at = trio.current_time()
        self._enter(child, State.RUNNING)

    # Keeping up

    async def _keep_up(self, nursery: trio.Nursery) -> None:
        while True:
            self._pulse.beat()
            with trio.move_on_at(min((child.retry_at for child in self._children), default=inf)):
                await self._news.wait()
            # No checkpoint between these two, so no report is lost between them.
            self._news = trio.Event()
            if self._stopping:
                return
            while self._ended:
                await self._child_ended(*self._ended.popleft())
            await self._start_the_due(nursery)

    async def _child_ended(self, child: Child, error: Exception | None) -> None:
        if child.state is not State.RUNNING:
            return  # it depends on one that ended just before, and starts again with that one
        self._enter(child, State.DOWN)
        wanted = child.spec.restart.wanted(failed=error is not None)
        if error is None:
            logger.info("%s returned%s", child.spec.name, "; starting it again" if wanted else "")
        if wanted:
            await self._plan_restart(child)
        else:
            self._close_mailbox(child, "it has done its work" if error is None else "it failed")

    async def _plan_restart(self, child: Child) -> None:
        """Decide when `child` starts again, and with whom; or that it was once too often."""
        now = trio.current_time()
        if self._window.exceeded_by(now):
            raise Escalated(
                f"{child.spec.name} needed more than {self._intensity.restarts} restarts "
                f"in {self._intensity.period:g} s; its last error: {child.last_error}"
            )
        child.failures += 1
        group = [child, *await self._stop_dependants(child)]
        # The stops may have taken a while; the wait counts from here.
        retry_at = trio.current_time() + self._backoff.wait(child.failures, self._chance)
        for member in group:
            member.retry_at = retry_at
            self._enter(member, State.WAITING)

    async def _stop_dependants(self, child: Child) -> list[Child]:
        """Stop those started after `child`; returns the ones that are started again with it."""
        if self._strategy is Strategy.ONE_FOR_ONE:
            return []
        after = self._children[self._children.index(child) + 1 :]
        dependants = [member for member in after if member.state is not State.DOWN]
        await self._stop_children(reversed(dependants))
        for member in dependants:
            if member.spec.restart is Restart.TEMPORARY:
                self._close_mailbox(member, f"it depended on {child.spec.name}, which ended")
        return [member for member in dependants if member.spec.restart is not Restart.TEMPORARY]

    async def _start_the_due(self, nursery: trio.Nursery) -> None:
        """Start, in order, what is due. A failure puts off the rest of its group with it."""
        for child in self._children:
            if self._ended or self._stopping:
                return  # the base of those that are still due may have ended
            if child.retry_at > trio.current_time():
                continue
            child.restarts += 1
            error = await self._start(nursery, child)
            if error is not None:
                child.last_error = describe(error)
                name, about = child.spec.name, _failed(child)
                logger.error("%s did not start again", name, exc_info=error, extra=about)
                await self._plan_restart(child)

    # Stopping

    async def _stop_children(self, children: Iterable[Child]) -> None:
        for child in children:
            child.retry_at = inf
            if child.state is State.RUNNING and not child.ended.is_set():
                self._enter(child, State.STOPPING)
                await self._stop_incarnation(child)
            self._enter(child, State.DOWN)

    async def _stop_incarnation(self, child: Child) -> None:
        self._pulse.beat(child.spec.grace)
        if child.spec.stop is not None and await self._stopped_in_time(child, child.spec.stop):
            return
        child.scope.cancel()
        await child.ended.wait()

    async def _stopped_in_time(self, child: Child, stop: Callable[[], None]) -> bool:
        try:
            stop()
        except Exception:  # whatever is wrong with it, the others are still stopped in order
            logger.exception("%s could not be asked to stop and is cancelled", child.spec.name)
            return False
        with trio.move_on_after(child.spec.grace):
            await child.ended.wait()
            return True
        name, grace = child.spec.name, child.spec.grace
        logger.warning("%s did not stop within %g s and is cancelled", name, grace)
        return False

    # Bookkeeping

    def _look_again(self) -> None:
        self._news.set()

    def _enter(self, child: Child, state: State) -> None:
        if child.state is not state:
            child.state = state
            child.since = self._wall()

    def _close_mailbox(self, child: Child, why: str) -> None:
        if child.spec.mailbox is not None:
            child.spec.mailbox.close(why)


class _Serving:
    """Passes `started()` on, and notes it at the very moment: a child may fail right after."""

    def __init__(self, outer: trio.TaskStatus[None], note: Callable[[], None]) -> None:
        self._outer = outer
        self._note = note

    def started(self, value: None = None) -> None:
        self._outer.started(value)  # first: it refuses a second call
        self._note()


def _failed(child: Child) -> dict[str, object]:
    return Event.PART_FAILED(actor=child.spec.name)


def _seconds_until(deadline: float) -> float | None:
    return None if deadline == inf else max(0.0, deadline - trio.current_time())
