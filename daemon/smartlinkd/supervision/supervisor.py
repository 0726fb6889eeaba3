"""A supervisor: it starts children in order, restarts those that end, and stops them in reverse.

The terms and rules are Erlang/OTP's (`supervisor`). Each child runs in its own task and cancel
scope, and only reports its end. One task, `Supervisor.run`, makes all decisions, so there are no
locks. A supervisor has the shape of a child, so supervisors nest. docs/decisions/002-restarts.md
tells why children are not restarted in their own task, and why a nested count is not reset.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from math import inf

import trio

from smartlinkd.errors import describe
from smartlinkd.logs import LogEvent, bind_log_actor
from smartlinkd.nurseries import sole_error
from smartlinkd.supervision.child import Child, ChildSnapshot, ChildSpec, ChildState
from smartlinkd.supervision.heartbeat import Heartbeat, WatchedLoop
from smartlinkd.supervision.policy import Backoff, Intensity, RestartWindow, Strategy

logger = logging.getLogger(__name__)


class Escalated(Exception):  # noqa: N818 - OTP's word
    """A child could not be kept running. All children were stopped in order."""


class Supervisor:
    """Keeps children running until `stop` is called, or until it has to give up.

    Args:
        specs: the children, in the order of their start.
        strategy: the children that are restarted with one that ended.
        backoff: the waits between the restarts of one child.
        intensity: the most restarts, of all children together, before the supervisor gives up.
        wall: the clock of the snapshots. All waits are on trio's clock.
    """

    def __init__(
        self,
        name: str,
        specs: Sequence[ChildSpec],
        *,
        strategy: Strategy = Strategy.ONE_FOR_ONE,
        backoff: Backoff = Backoff(),  # noqa: B008 - frozen
        intensity: Intensity = Intensity(),  # noqa: B008 - frozen
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.name = name
        self._strategy = strategy
        self._backoff = backoff
        self._intensity = intensity
        self._wall = wall
        self._children = [Child(spec, wall()) for spec in specs]
        self._heartbeat = Heartbeat(self._wake)
        self._own_loop: WatchedLoop | None = None
        self._window = RestartWindow(intensity)
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._stopping = False
        self._starting = trio.CancelScope()
        # What ended by itself since the last look, and the event that says there is something.
        self._ended: deque[tuple[Child, Exception | None]] = deque()
        self._wake_event = trio.Event()
        self._ending = trio.Event()

    def stop(self) -> None:
        """Ask for an orderly end: `run` returns when all children have ended.

        A child that is starting is cancelled. A `run` that comes later returns at once.
        """
        self._stopping = True
        self._starting.cancel()
        self._wake_event.set()

    @property
    def stopping(self) -> bool:
        """True from `stop()` until `run` returns."""
        return self._stopping

    def snapshot(self) -> list[ChildSnapshot]:
        """Return the children's states, in the order of their start."""
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
        """Seconds that an orderly end takes if each child uses its whole grace."""
        return sum(child.spec.grace for child in self._children if child.spec.stop is not None)

    def extend_grace(self, name: str, seconds: float) -> None:
        """Set the grace of the child `name` to `seconds`, unless it has more already."""
        (child,) = (each for each in self._children if each.spec.name == name)
        child.spec = replace(child.spec, grace=max(seconds, child.spec.grace))

    async def wait_ending(self) -> None:
        """Wait until the children are being stopped, for whatever reason."""
        await self._ending.wait()

    def watched_loops(self) -> list[WatchedLoop]:
        """Return the loops that have to show heartbeats now: this one and its running children's.

        A child that starts, stops, has ended or waits for its restart is not among them. It may
        take as long as its spec allows, and this supervisor's own heartbeat covers that time.
        """
        if self._own_loop is None:
            return []
        return [self._own_loop, *(v for child in self._children for v in child.watched_loops())]

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Start all children in order, then keep them running.

        Raises:
            Escalated: a child failed its first start, or was restarted too often. All children
                have been stopped, in reverse order, by then.
        """
        now, task = trio.current_time(), trio.lowlevel.current_task()
        self._own_loop = WatchedLoop(self.name, self._heartbeat, since=now, busy=0.0, task=task)
        try:
            async with sole_error(), trio.open_nursery() as nursery:
                try:
                    await self._start_all(nursery)
                    task_status.started()
                    await self._supervise(nursery)
                finally:
                    self._ending.set()
                    # When `run` itself was cancelled the children are cancelled too, and these
                    # waits end at once: there is nothing to be orderly about any more.
                    await self._stop_children(reversed(self._children))
        finally:
            for child in self._children:
                child.failures = 0
                child.retry_at = inf
                self._enter(child, ChildState.DOWN)
                if child.spec.mailbox is not None:
                    child.spec.mailbox.close("the daemon, or this part of it, is stopping")
            self._own_loop = None
            self._begin_anew()

    # Starting

    async def _start_all(self, nursery: trio.Nursery) -> None:
        for child in self._children:
            if self._stopping:
                return
            if self._dependency_has_ended():
                self._defer(child)
                continue
            error = await self._start(nursery, child)
            if error is not None:
                raise Escalated(f"{child.spec.name} did not start: {describe(error)}") from error

    async def _start(self, nursery: trio.Nursery, child: Child) -> Exception | None:
        """Start one instance and wait until it serves. Return the error of a failed start.

        A cancelled start returns None. If `stop` cancelled it the child is down. If a child that
        it depends on has ended it is due again, after that child.
        """
        self._heartbeat.touch(child.spec.start_timeout)
        child.retry_at = inf
        child.scope = trio.CancelScope()
        child.ended = trio.Event()
        self._enter(child, ChildState.STARTING)
        try:
            with trio.move_on_after(child.spec.start_timeout) as self._starting:
                await nursery.start(self._instance, child)
                return None
        except Exception as error:  # noqa: BLE001 - whatever it is, it is why the child is down
            self._enter(child, ChildState.DOWN)
            return error
        if self._dependency_has_ended():
            self._defer(child)
            return None
        self._enter(child, ChildState.DOWN)
        too_slow = trio.TooSlowError(f"did not serve within {child.spec.start_timeout:g} s")
        return None if self._stopping else too_slow

    async def _instance(self, child: Child, task_status: trio.TaskStatus[None]) -> None:
        """Run one instance. Its error is raised until it serves, and reported afterwards."""
        status = _Serving(task_status, lambda: self._serves(child))
        child.task = trio.lowlevel.current_task()
        error: Exception | None = None
        try:
            with child.scope, bind_log_actor(child.spec.name):
                await child.spec.run(status)
        except Exception as failure:
            if child.state is ChildState.STARTING:
                raise
            error = failure
            self._log_failure(child, failure)
        except BaseExceptionGroup as group:
            # Errors beside a Cancelled or a KeyboardInterrupt, which goes on alone.
            failures, rest = group.split(Exception)
            if failures is None or rest is None:
                raise
            self._log_failure(child, failures)
            raise rest from None
        finally:
            child.ended.set()
        if child.state is ChildState.RUNNING:
            if trio.current_time() - child.started_at >= self._backoff.healthy:
                child.failures = 0
            self._ended.append((child, error))
            self._wake_event.set()
            if self._dependency_has_ended():
                self._starting.cancel()

    def _dependency_has_ended(self) -> bool:
        """True if a child has ended on which the starting child depends."""
        return self._strategy is Strategy.REST_FOR_ONE and bool(self._ended)

    def _defer(self, child: Child) -> None:
        """Have the child start after the children that it depends on."""
        child.retry_at = trio.current_time()
        self._enter(child, ChildState.WAITING)

    def _log_failure(self, child: Child, error: Exception) -> None:
        # At once, and not when the report is read: that may be never, when all is stopping.
        child.last_error = describe(error)
        if child.state is ChildState.RUNNING:
            logger.error("%s failed", child.spec.name, exc_info=error, extra=_failed(child))
        else:
            logger.warning("%s failed while stopping", child.spec.name, exc_info=error)

    def _serves(self, child: Child) -> None:
        child.started_at = trio.current_time()
        self._enter(child, ChildState.RUNNING)

    # Keeping up

    async def _supervise(self, nursery: trio.Nursery) -> None:
        while True:
            self._heartbeat.touch()
            with trio.move_on_at(min((child.retry_at for child in self._children), default=inf)):
                await self._wake_event.wait()
            # No checkpoint between these two, so no report is lost between them.
            self._wake_event = trio.Event()
            if self._stopping:
                return
            while self._ended:
                await self._child_ended(*self._ended.popleft())
            await self._start_the_due(nursery)

    async def _child_ended(self, child: Child, error: Exception | None) -> None:
        if child.state is not ChildState.RUNNING:
            return  # it depends on one that ended just before, and starts again with that one
        self._enter(child, ChildState.DOWN)
        if error is None:
            logger.info("%s returned; starting it again", child.spec.name)
        await self._plan_restart(child)

    async def _plan_restart(self, child: Child) -> None:
        """Schedule the restart of `child` and its dependants. Raises `Escalated` if too many."""
        now = trio.current_time()
        if self._window.exceeded_by(now):
            raise Escalated(
                f"{child.spec.name} needed more than {self._intensity.restarts} restarts "
                f"in {self._intensity.period:g} s; its last error: {child.last_error}"
            )
        child.failures += 1
        group = [child]
        if self._strategy is Strategy.REST_FOR_ONE:
            group = self._children[self._children.index(child) :]
            await self._stop_children(reversed(group[1:]))
        # The stops may have taken a while; the wait counts from here.
        retry_at = trio.current_time() + self._backoff.wait(child.failures)
        for member in group:
            member.retry_at = retry_at
            self._enter(member, ChildState.WAITING)

    async def _start_the_due(self, nursery: trio.Nursery) -> None:
        """Start the due children in order. A failure reschedules the rest of its group."""
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
            if child.state is ChildState.RUNNING and not child.ended.is_set():
                self._enter(child, ChildState.STOPPING)
                await self._stop_instance(child)
            self._enter(child, ChildState.DOWN)

    async def _stop_instance(self, child: Child) -> None:
        self._heartbeat.touch(child.spec.grace)
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

    def _wake(self) -> None:
        self._wake_event.set()

    def _enter(self, child: Child, state: ChildState) -> None:
        if child.state is not state:
            child.state = state
            child.since = self._wall()


class _Serving:
    """A task status that also calls `note`, at once: a child may fail right after its start."""

    def __init__(self, outer: trio.TaskStatus[None], note: Callable[[], None]) -> None:
        self._outer = outer
        self._note = note

    def started(self, value: None = None) -> None:
        self._outer.started(value)  # first: it refuses a second call
        self._note()


def _failed(child: Child) -> dict[str, object]:
    return LogEvent.PART_FAILED(actor=child.spec.name)


def _seconds_until(deadline: float) -> float | None:
    return None if deadline == inf else max(0.0, deadline - trio.current_time())
