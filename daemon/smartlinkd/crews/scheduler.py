"""The scheduler decides which execution of which crew runs next.

An execution waits as PENDING in its crew's queue until the crew has a free slot and its worker may
start. Why workers start a few at a time: docs/decisions/065-starting-workers.md. One `Scheduler` is
the state of one instance of the executor, and begins with what the store says is unfinished.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from uuid import uuid4

import trio

from smartlinkd.crews.catalog.catalog import Catalog
from smartlinkd.crews.execution import NOT_WAITING, Completion, ExecutionContext, RunningExecution
from smartlinkd.crews.model import Crew, CrewLoad, CrewUser, Feedback, Kickoff
from smartlinkd.crews.outcome import Outcome
from smartlinkd.crews.store_entries import begun, requeued, subject_of
from smartlinkd.errors import Invalid, Unavailable, Unprocessable
from smartlinkd.logs import LogEvent
from smartlinkd.store.model import (
    ExecutionState,
    IdempotencyKey,
    NewExecution,
    Status,
    Summary,
)
from smartlinkd.supervision.actor import Call

logger = logging.getLogger(__name__)

FULL_RETRY_AFTER = 10
"""Seconds after which a client may find room in a full queue."""

INTERRUPTED = "the daemon ended, or was restarted, while it was running"
NEVER_RUN = "its turn did not come: its crew is no longer in the configuration"


@dataclass
class CrewQueue:
    """One crew's executions: those that wait, in the order of their turn, and those that run."""

    name: str
    waiting: dict[str, None] = field(default_factory=dict)
    running: dict[str, RunningExecution] = field(default_factory=dict)
    enqueue_lock: trio.Semaphore = field(default_factory=lambda: trio.Semaphore(1, max_value=1))
    """Held from the check for room to the entry, so that the queue has the store's order."""

    @property
    def starting(self) -> int:
        """The number of executions whose worker is still starting."""
        return sum(not each.worker_started.is_set() for each in self.running.values())

    def check_room(self, crew: Crew) -> None:
        """Raise `Unavailable` if the queue is full."""
        # A free slot lets one more wait, also while its last worker is still exiting or the next
        # one may not start yet. Else a client that kicks off one by one would be refused.
        busy = sum(not each.has_finished for each in self.running.values())
        free = max(0, crew.max_running - busy)
        if len(self.waiting) >= crew.queue + free:
            more = f", and {free} more whose turn is about to come" if free else ""
            raise Unavailable(
                f"the queue of crew {crew.name} is full, with {len(self.waiting)} waiting: it "
                f"takes {crew.queue} (queue){more}; try again later",
                retry_after=FULL_RETRY_AFTER,
            )


class Scheduler:
    """The queues of all crews."""

    def __init__(
        self,
        catalog: Catalog,
        context: ExecutionContext,
        *,
        executions: trio.Nursery,
        writes: trio.Nursery,
        background: trio.Nursery,
    ) -> None:
        """Args:
        executions: runs executions. A stop does not cancel it: each ends its worker first.
        writes: runs what a client has asked to record. It gets a little time after `suspend`.
        background: runs what may be cancelled at any moment, since the next instance does it.
        """
        self._catalog = catalog
        self._context = context
        self._recorder = context.recorder
        self._limits = context.recorder.limits
        self._executions = executions
        self._writes = writes
        self._background = background
        self._queues = {name: CrewQueue(name) for name in catalog.crews}
        self._ending: dict[str, Completion] = {}
        """Executions that end without a worker, until their outcome is recorded."""
        self._is_suspended = False

    # Start, reload and end

    async def load_unfinished(self) -> None:
        """Enqueue what has not ended. On return no kickoff can get in front of it.

        Of a crew that cannot run, it waits for a reload. Of a crew that is gone, it ends.
        """
        unfinished = sorted(await self._recorder.unfinished(), key=attrgetter("crew", "sequence"))
        if unfinished:
            logger.info("%d executions have not ended: going on with them", len(unfinished))
        for crew, executions in groupby(unfinished, key=attrgetter("crew")):
            queue = self._queues.setdefault(crew, CrewQueue(crew))
            await self._background.start(self._enqueue_unfinished, queue, list(executions))

    async def apply_catalog(self, catalog: Catalog) -> None:
        """Go by another catalog. What runs goes on as it was started, what waits runs as its crew
        is then, waits on if the crew cannot run, and ends if the crew is gone.
        """
        self._catalog = catalog
        for name in catalog.crews:  # before any await: a kickoff looks for its crew's queue
            self._queues.setdefault(name, CrewQueue(name))
        for queue in self._queues.values():
            if catalog.is_gone(queue.name):
                self._background.start_soon(self._close, queue)
        self._start_next()

    def suspend(self) -> None:
        """Stop all workers. Their executions stay unfinished in the store."""
        self._is_suspended = True
        self._writes.cancel_scope.deadline = trio.current_time() + self._limits.last_write_s
        for queue in self._queues.values():
            queue.waiting.clear()
            for execution in queue.running.values():
                execution.suspend()

    async def _enqueue_unfinished(
        self, queue: CrewQueue, executions: Sequence[Summary], task_status: trio.TaskStatus[None]
    ) -> None:
        async with queue.enqueue_lock:
            task_status.started()
            if self._catalog.on_restart(queue.name) == "fail":
                interrupted = [
                    each.id for each in executions if each.state is not ExecutionState.PENDING
                ]
                self._end_soon(interrupted, Outcome(Status.INTERRUPTED, error=INTERRUPTED))
                executions = [each for each in executions if each.state is ExecutionState.PENDING]
            for execution in executions:
                if execution.state is ExecutionState.PENDING or await self._requeue(execution):
                    queue.waiting[execution.id] = None
                    self._start_waiting(queue)
        if self._catalog.is_gone(queue.name):
            await self._close(queue)
        elif queue.name not in self._catalog.crews and queue.waiting:
            text = "%d executions wait until crew %s is mended"
            logger.warning(text, len(queue.waiting), queue.name)

    async def _requeue(self, interrupted: Summary) -> bool:
        """Put an execution back to its beginning. Return False if it has ended instead."""
        if await self._recorder.count_reruns(interrupted.id) >= self._limits.max_reruns:
            why = f"{INTERRUPTED}, as in {self._limits.max_reruns} runs before"
            await self._end(interrupted.id, Outcome(Status.INTERRUPTED, error=why))
            return False
        execution = await self._recorder.read(interrupted.id)
        entry = requeued(subject_of(execution), self._recorder.wall())
        try:
            await self._recorder.record(execution.id, ExecutionState.PENDING, entry)
        except Invalid as fault:  # its webhook calls, or their bytes, are as many as one may have
            why = f"{INTERRUPTED}, and cannot be run again: {fault}"
            await self._end(execution.id, Outcome(Status.INTERRUPTED, error=why))
            return False
        return True

    async def _close(self, queue: CrewQueue) -> None:
        """End what waits for a crew that is gone, after the kickoffs that are being recorded."""
        async with queue.enqueue_lock:
            if self._catalog.is_gone(queue.name):  # not put back by another reload
                self._end_soon(queue.waiting, Outcome(Status.INTERRUPTED, error=NEVER_RUN))
                queue.waiting.clear()

    # Calls

    async def kickoff(self, user: CrewUser, kickoff: Kickoff, key: IdempotencyKey | None) -> str:
        """Enqueue an execution; see `Executor.kickoff`."""
        crew = self._catalog.crew(user.crew)
        missing = crew.missing(kickoff.inputs)
        if missing:
            raise Unprocessable(
                f"inputs: these are required and missing: {', '.join(missing)}",
                details={"missing_inputs": list(missing)},
            )
        queue = self._queues[crew.name]
        await queue.enqueue_lock.acquire()
        # A task of ours does it: nothing is lost if the client leaves, or this instance ends,
        # between the write and the entry. A shield would wait for ever for a journal that restarts.
        enqueue = Call[Scheduler, str](
            "executor", lambda scheduler: scheduler._enqueue(queue, user, kickoff, key)
        )
        self._writes.start_soon(enqueue.answer, self)
        return await enqueue.wait()

    async def stop(self, user: CrewUser, kickoff_id: str) -> Completion:
        """Begin to stop an execution that exists; see `Executor.stop`. Raises `Invalid`."""
        by = f"user {user.user}" if user.user else "a holder of the organization token"
        if (queue := self._queues.get(user.crew)) is not None:
            async with queue.enqueue_lock:
                pass
            # What was being loaded or recorded when this call came is in the queue by now.
        if queue is not None and (execution := queue.running.get(kickoff_id)) is not None:
            if execution.completion.status is None:
                execution.cancel(f"stopped by {by}")
                return execution.completion
        elif queue is not None and kickoff_id in queue.waiting:
            del queue.waiting[kickoff_id]
            why = f"stopped by {by} before its turn came"
            self._end_soon([kickoff_id], Outcome(Status.STOPPED, error=why), self._writes)
        if (completion := self._ending.get(kickoff_id)) is None:
            raise Invalid("kickoff_id: this execution has ended already")
        return completion

    async def resume(self, user: CrewUser, kickoff_id: str, feedback: Feedback) -> None:
        """Answer the question of an execution that exists; see `Executor.resume`."""
        queue = self._queues.get(user.crew)
        execution = queue.running.get(kickoff_id) if queue is not None else None
        if execution is None or execution.has_finished:
            raise Invalid(NOT_WAITING)
        await execution.answer(feedback)

    def load(self) -> dict[str, CrewLoad]:
        """Return how many executions of each crew run and wait."""
        return {
            name: CrewLoad(running=len(queue.running), waiting=len(queue.waiting))
            for name, queue in self._queues.items()
            if name in self._catalog.crews or queue.running or queue.waiting
        }

    async def _enqueue(
        self, queue: CrewQueue, user: CrewUser, kickoff: Kickoff, key: IdempotencyKey | None
    ) -> str:
        """Record a new execution and enqueue it. The lock is held, and released at the end."""
        try:
            crew = self._catalog.crew(queue.name)  # a reload may have changed it since the kickoff
            queue.check_room(crew)
            new = NewExecution(
                id=str(uuid4()),
                crew=crew.name,
                owner=user.user,
                created_at=self._recorder.wall(),
                inputs=kickoff.inputs,
                meta=kickoff.meta,
                webhooks=kickoff.webhooks,
            )
            # If it can run at once its beginning is recorded with it: one wait for the disk. The
            # slot stays free meanwhile, since nothing waits and the lock keeps others from it.
            runs = not queue.waiting and self._can_start(queue, crew)
            entry = begun(subject_of(new), new.created_at) if runs else None
            created = await self._recorder.create(new, key, entry)
            if created != new.id:
                return created
            event = LogEvent.EXECUTION_ACCEPTED(crew=crew.name, kickoff_id=new.id)
            logger.info("crew %s: execution %s is accepted", crew.name, new.id, extra=event)
            if entry is None:
                queue.waiting[new.id] = None
                self._start_waiting(queue)
            elif not self._is_suspended:  # else the next instance decides about it
                self._start(queue, crew, new.id, new)
            return created
        finally:
            queue.enqueue_lock.release()

    # Running

    def _can_start(self, queue: CrewQueue, crew: Crew) -> bool:
        """Return True if the crew has a free slot and one more worker may start."""
        if self._is_suspended or len(queue.running) >= crew.max_running:
            return False
        starting = sum(each.starting for each in self._queues.values())
        # No crew waits for another: each may always have one that starts.
        return starting < self._limits.max_starting or queue.starting == 0

    def _start_next(self) -> None:
        """Start waiting executions, first those of crews with the fewest starting workers."""
        for queue in sorted(self._queues.values(), key=attrgetter("starting")):
            self._start_waiting(queue)

    def _start_waiting(self, queue: CrewQueue) -> None:
        # Nothing is started while the crew cannot run, and what waits waits on.
        crew = self._catalog.crews.get(queue.name)
        while crew is not None and queue.waiting and self._can_start(queue, crew):
            kickoff_id = next(iter(queue.waiting))
            del queue.waiting[kickoff_id]
            self._start(queue, crew, kickoff_id)

    def _start(
        self, queue: CrewQueue, crew: Crew, kickoff_id: str, new: NewExecution | None = None
    ) -> None:
        execution = RunningExecution(kickoff_id, crew, self._context, new)
        queue.running[kickoff_id] = execution
        self._background.start_soon(self._watch_start, execution)
        self._executions.start_soon(self._run, queue, execution)

    async def _watch_start(self, execution: RunningExecution) -> None:
        """Start others once this execution's worker has started, or has had its time for it."""
        with trio.move_on_after(self._limits.start_timeout_s):
            await execution.worker_started.wait()
        execution.worker_started.set()
        self._start_next()

    async def _run(self, queue: CrewQueue, execution: RunningExecution) -> None:
        await execution.run()
        del queue.running[execution.id]
        self._start_next()

    # Outcome without a worker

    def _end_soon(
        self, ids: Iterable[str], outcome: Outcome, nursery: trio.Nursery | None = None
    ) -> None:
        """Record an outcome of executions one by one, by a task of `nursery` or the background."""
        ending = {each: Completion(self._limits.completion_timeout_s) for each in ids}
        self._ending |= ending
        (nursery or self._background).start_soon(self._end_each, ending, outcome)

    async def _end_each(self, ending: Mapping[str, Completion], outcome: Outcome) -> None:
        try:
            for each, completion in ending.items():
                await self._end(each, outcome)
                completion.status = outcome.status
                completion.ended.set()
                del self._ending[each]
        finally:
            for completion in ending.values():  # what is not recorded by now will not be
                completion.ended.set()

    async def _end(self, execution_id: str, outcome: Outcome) -> None:
        """Record the outcome of an execution without a worker."""
        execution = await self._recorder.read(execution_id)
        await self._recorder.finish(execution.crew, subject_of(execution), outcome)
