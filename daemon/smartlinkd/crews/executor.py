"""The executor actor: runs crews' executions, and answers clients about them.

The promise: a kickoff_id that was returned is known from then on, has its turn in the order of its
crew's kickoffs, and comes to an end, whatever ends in between: a worker, this actor, the daemon or
the host. So an execution is in the store before its kickoff is answered, every change is there
before a client is notified, and each instance begins by reading what has not ended. It empties
`runs/`, the folder of all workers' folders, as well.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import trio
from prometheus_client import Counter, Histogram

from smartlinkd.crews.catalog.catalog import Catalog
from smartlinkd.crews.execution import ExecutionContext
from smartlinkd.crews.model import (
    BrokenCrew,
    Crew,
    CrewLoad,
    CrewUser,
    ExecutorLimits,
    Feedback,
    Kickoff,
    ListedCrew,
)
from smartlinkd.crews.recorder import ExecutionRecorder
from smartlinkd.crews.scheduler import Scheduler
from smartlinkd.crews.subscriptions import ExecutionEventStream, Subscriptions
from smartlinkd.crews.tools import Tool
from smartlinkd.errors import NotFound
from smartlinkd.nurseries import sole_error
from smartlinkd.processes.reaper import empty_folder
from smartlinkd.state_files import StateUnusable
from smartlinkd.store.actor import Store
from smartlinkd.store.model import (
    Execution,
    ExecutionState,
    IdempotencyKey,
    ListPage,
)
from smartlinkd.supervision.actor import Mailbox
from smartlinkd.supervision.calls import actor_deadline
from smartlinkd.threads import on_thread

logger = logging.getLogger(__name__)

NO_SUCH_EXECUTION = "there is no such execution, or not any more"


class Executor:
    """The executor's handle. Each call may raise `Unavailable`, and what it names."""

    def __init__(
        self,
        catalog: Catalog,
        store: Store,
        *,
        tools: Mapping[str, Tool],
        runs: Path,
        on_calls_queued: Callable[[], None],
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
        limits: ExecutorLimits | None = None,
    ) -> None:
        """Args:
        runs: the folder for workers' own folders. It is made if missing, and is nobody else's.
        on_calls_queued: called when webhook calls were queued.
        """
        self._limits = limits or ExecutorLimits()
        self.mailbox = Mailbox[Scheduler]("executor", size=self._limits.mailbox_size)
        self._catalog = catalog
        self._store = store
        self._wall = wall
        self._subscriptions = Subscriptions()
        self._recorder = ExecutionRecorder(
            store, self._subscriptions, on_calls_queued, wall, self._limits
        )
        self._context = ExecutionContext(self._recorder, tools, runs)
        self._stopping = trio.Event()
        self._scheduler: Scheduler | None = None

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """Go on with what has not ended, then serve until stopped. Raises `StateUnusable`."""
        self._stopping = trio.Event()
        await on_thread(_make_empty, self._context.runs)
        try:
            async with (
                sole_error(),
                trio.open_nursery() as executions,
                sole_error(),
                trio.open_nursery() as writes,
                sole_error(),
                trio.open_nursery() as background,
            ):
                scheduler = Scheduler(
                    self._catalog,
                    self._context,
                    executions=executions,
                    writes=writes,
                    background=background,
                )
                await scheduler.load_unfinished()
                self._scheduler = scheduler
                at_once = self._limits.calls_at_once
                background.start_soon(partial(self.mailbox.serve, scheduler, at_once=at_once))
                task_status.started()
                await self._stopping.wait()
                # Before `background` closes, since an execution that is started uses it.
                scheduler.suspend()
                background.cancel_scope.cancel()  # `executions` ends when the last worker has
        finally:
            self._scheduler = None

    def stop_all(self) -> None:
        """End this instance and all workers. The next instance goes on with their executions."""
        self._stopping.set()

    @property
    def catalog(self) -> Catalog:
        """The crews as they are now."""
        return self._catalog

    async def apply_catalog(self, catalog: Catalog) -> None:
        """Go by these crews from now on; see `Scheduler.apply_catalog`. If this raises, the next
        instance begins with them.
        """
        self._catalog = catalog
        await self.mailbox.ask(Scheduler.apply_catalog, catalog)

    async def kickoff(self, user: CrewUser, kickoff: Kickoff, key: IdempotencyKey | None) -> str:
        """Enqueue an execution of the user's crew, unless its key stands for one. Return the id.

        Raises:
            Unprocessable: inputs are missing, or the key was used for another body.
            Unavailable: the queue is full, or the crew cannot run.
            NotFound: a reload has just removed the crew.
            Invalid: the values cannot be kept.
        """
        return await self.mailbox.ask(Scheduler.kickoff, user, kickoff, key)

    async def created_by(self, user: CrewUser, key: IdempotencyKey | None) -> str | None:
        """Return the kickoff_id that the same request was answered with before, else None.

        Raises as `Executions.created_by` does.
        """
        if key is None:
            return None
        return await self._store.created_by(user.crew, user.user, key, self._wall())

    async def stop(self, user: CrewUser, kickoff_id: str) -> None:
        """End an execution, and return when it has ended.

        A client that gives up, or is gone already, takes nothing back. Raises `NotFound` if there
        is none that the user may see, and `Invalid` if it had ended before.
        """
        # Bounded, since the shield keeps the client's own deadline out.
        with trio.CancelScope(shield=True), actor_deadline():
            await self._check_exists(user, kickoff_id)
            completion = await self.mailbox.ask(Scheduler.stop, user, kickoff_id)
        # In the client's task: it may take minutes, and many may wait for it.
        await completion.wait_stopped()

    async def resume(self, user: CrewUser, kickoff_id: str, feedback: Feedback) -> None:
        """Answer a question to a human.

        Raises:
            NotFound: there is none that the user may see.
            Invalid: nothing is asked, or about another task, or the answer cannot be recorded.
        """
        await self._check_exists(user, kickoff_id, field="execution_id")
        await self.mailbox.ask(Scheduler.resume, user, kickoff_id, feedback)

    async def execution(self, user: CrewUser, kickoff_id: str) -> Execution:
        """Return an execution. Raises `NotFound` if there is none that the user may see."""
        found = await self._store.execution(kickoff_id, crew=user.crew, owner=user.sees_only)
        if found is None:
            raise NotFound(f"kickoff_id: {NO_SUCH_EXECUTION}")
        return found

    async def executions(
        self, user: CrewUser, *, state: ExecutionState | None, limit: int, cursor: str | None
    ) -> ListPage:
        """Return what the user may see, newest first. Raises `Invalid` for a wrong cursor."""
        return await self._store.executions(
            user.crew, owner=user.sees_only, state=state, limit=limit, cursor=cursor
        )

    async def wait(self, user: CrewUser, kickoff_id: str, seconds: float) -> Execution:
        """Return the execution at a new state or its end, or after `seconds`. Raises `NotFound`."""
        with self._subscriptions.subscribe(kickoff_id) as subscription:
            found = await self.execution(user, kickoff_id)
            before = found.state
            if before.ended:
                return found
            del found  # it may be large, and the wait long
            with trio.move_on_after(seconds):
                while subscription.state in (None, before):
                    await subscription.wait()
        return await self.execution(user, kickoff_id)

    @asynccontextmanager
    async def follow(
        self, user: CrewUser, kickoff_id: str, *, after: int
    ) -> AsyncIterator[ExecutionEventStream]:
        """Yield a stream of the events numbered above `after`, as they happen.

        Raises `NotFound` if there is none that the user may see.
        """
        with self._subscriptions.subscribe(kickoff_id) as subscription:
            await self._check_exists(user, kickoff_id)
            yield ExecutionEventStream(self._store, kickoff_id, subscription, after)

    def listed(self) -> list[ListedCrew]:
        """Return all crews of the configuration: those that can run, then the broken ones."""
        catalog, loads = self._catalog, self.load()
        crews: list[Crew | BrokenCrew] = [*catalog.crews.values(), *catalog.broken]
        return [
            ListedCrew(
                crew=crew,
                default=crew.name is not None and crew.name == catalog.default,
                paths=() if crew.name is None else tuple(catalog.paths(crew.name)),
                load=loads.get(crew.name or "", CrewLoad()),
            )
            for crew in crews
        ]

    def load(self) -> dict[str, CrewLoad]:
        """Return how many executions of each crew run and wait; {} while the executor is down.

        A crew that cannot run is among them while something of it runs or waits.
        """
        return self._scheduler.load() if self._scheduler is not None else {}

    @property
    def metrics(self) -> tuple[Counter, Histogram]:
        """The ends of executions since the start, and their waits for a worker, for `/metrics`."""
        return self._recorder.ended, self._recorder.waits

    @property
    def followers(self) -> int:
        """The number of clients that wait for news of an execution."""
        return self._subscriptions.count

    async def _check_exists(
        self, user: CrewUser, kickoff_id: str, *, field: str = "kickoff_id"
    ) -> None:
        if await self._store.summary(kickoff_id, crew=user.crew, owner=user.sees_only) is None:
            raise NotFound(f"{field}: {NO_SUCH_EXECUTION}")


def _make_empty(runs: Path) -> None:
    """Make the folder, and remove what a loss of power has left in it. Raises `StateUnusable`.

    The folder itself stays: a disk that is full would not let it be made again.
    """
    try:
        runs.mkdir(mode=0o700, exist_ok=True)
        why = empty_folder(os.fsencode(runs))
    except OSError as error:
        raise StateUnusable(
            f"{runs}: the folder for crews' workers cannot be made ({error.strerror}); make the "
            "state directory writable for the daemon's user, and room on its disk"
        ) from None
    if why:
        text = "%s: a worker has left something that cannot be removed: %s; remove it by hand"
        logger.warning(text, runs, why)
