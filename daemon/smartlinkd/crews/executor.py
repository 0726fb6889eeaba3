"""The executor actor: whose turn it is, and what becomes of every execution.

The promise: a kickoff_id that was returned is known from then on and comes to an end, in the order
of the kickoffs of its crew, whatever ends in between: a worker, this actor, the daemon, the host.
So an execution is in the journal before its kickoff is answered, every change is there before
anybody hears of it, and each instance begins by reading what has not ended.

A crew's executions wait in its own line and never for another crew's. What an instance has in
hand is a task in its nursery: it goes on when whoever asked for it goes away, and ends with the
actor, workers first. Reading goes straight to the journal, so that statuses are told while
executions are being stopped.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

import trio
from prometheus_client import Histogram
from pydantic import JsonValue

from smartlinkd.crews.catalog.catalog import Catalog
from smartlinkd.crews.crew import (
    BrokenCrew,
    Caller,
    Crew,
    CrewLoad,
    Feedback,
    Kickoff,
    ListedCrew,
    no_such_execution,
)
from smartlinkd.crews.following import Bells, Following
from smartlinkd.crews.lines import Lines
from smartlinkd.crews.tools import Tool
from smartlinkd.crews.workplace import Workplace
from smartlinkd.errors import Invalid
from smartlinkd.journal.actor import Journal
from smartlinkd.journal.model import (
    Execution,
    IdempotencyKey,
    Page,
    State,
    Status,
    Summary,
    WebhookTarget,
)
from smartlinkd.nurseries import sole_error
from smartlinkd.patience import patience
from smartlinkd.processes.removing import empty_folder
from smartlinkd.state_files import StateUnusable
from smartlinkd.supervision.actor import Mailbox
from smartlinkd.threads import on_thread

logger = logging.getLogger(__name__)

S = TypeVar("S", bound=Summary)

QUEUE = 256
"""Kickoffs, stops and resumes that may wait, over all crews."""
AT_ONCE = 512
"""Questions worked on at a time; no address serves more connections than that. Each may wait for
the disk, or for the way into a crew's line, and no kickoff of another crew may wait for that."""


class Executor:
    """What others hold. Each call may raise `Unavailable`, and those that are named."""

    def __init__(
        self,
        catalog: Catalog,
        journal: Journal,
        *,
        tools: Mapping[str, Tool],
        runs: Path,
        queued: Callable[[], None],
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`runs` is made if missing, and is nobody else's. `queued` is called when webhook calls
        were queued."""
        self.mailbox = Mailbox[Lines]("executor", size=QUEUE)
        self._catalog = catalog
        self._journal = journal
        self._bells = Bells()
        self._workplace = Workplace(journal, self._bells, tools, runs, queued, wall)
        self._stopping = trio.Event()
        self._lines: Lines | None = None

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """One instance: goes on with what has not ended, then serves until stopped."""
        self._stopping = trio.Event()
        await on_thread(_make_empty, self._workplace.runs)
        try:
            async with sole_error(), trio.open_nursery() as running:
                async with sole_error(), trio.open_nursery() as errands:
                    lines = Lines(self._catalog, self._workplace, running=running, errands=errands)
                    await lines.go_on()
                    self._lines = lines
                    errands.start_soon(partial(self.mailbox.serve, lines, at_once=AT_ONCE))
                    task_status.started()
                    await self._stopping.wait()
                    errands.cancel_scope.cancel()
                lines.leave_off()
                # The nursery ends when the last worker has.
        finally:
            self._lines = None

    def stop_all(self) -> None:
        """Have workers end, and `run` return. What they did is for the next start to go on with."""
        self._stopping.set()

    @property
    def catalog(self) -> Catalog:
        """The crews as they are now."""
        return self._catalog

    async def take(self, catalog: Catalog) -> None:
        """Have these crews from now on: see `Lines.take`. Also when it raises: then the next
        instance begins with them."""
        self._catalog = catalog
        await self.mailbox.ask(Lines.take, catalog)

    async def kickoff(
        self, caller: Caller, kickoff: Kickoff, *, idempotency_key: str | None, body: JsonValue
    ) -> str:
        """Put an execution into its crew's line; returns its kickoff_id.

        `body` is the request's, for the idempotency key. Raises `Unprocessable` (inputs that are
        missing, a key used for another body), `Unavailable` (a full queue, a broken crew), or
        `Invalid` (values that cannot be kept).
        """
        key = IdempotencyKey(idempotency_key, body) if idempotency_key is not None else None
        return await self.mailbox.ask(Lines.kickoff, caller, kickoff, key)

    async def created_by(
        self, caller: Caller, *, idempotency_key: str | None, body: JsonValue
    ) -> str | None:
        """The kickoff_id that the same request was answered with before, else None. For a request
        that is refused unless it is a repetition. Raises `Unprocessable` for a key used for another
        body."""
        if idempotency_key is None:
            return None
        key = IdempotencyKey(idempotency_key, body)
        return await self._journal.created_by(caller.crew, caller.user, key)

    async def stop(self, caller: Caller, kickoff_id: str) -> None:
        """End an execution; returns when it has ended. Raises `NotFound`, or `Invalid` when it had
        ended before.

        An asker that gives up, or is gone already, takes nothing back: it is stopped all the same.
        """
        # Bounded, since the shield keeps the asker's own deadline out.
        with trio.CancelScope(shield=True), patience():
            await self._summary(caller, kickoff_id)
            stopping = await self.mailbox.ask(Lines.stop, caller, kickoff_id)
        await stopping.wait_over()

    async def resume(
        self,
        caller: Caller,
        kickoff_id: str,
        feedback: Feedback,
        *,
        webhooks: tuple[WebhookTarget, ...],
    ) -> Execution:
        """Answer what a human was asked. `webhooks`, which may be empty, replace those of the same
        kinds from now on. Returns the execution as it is then.

        Raises `NotFound`, or `Invalid` when nothing is asked, or about another task.
        """
        if (await self._summary(caller, kickoff_id, "execution_id")).state.ended:
            raise Invalid(
                "execution_id: this execution has ended, and is not waiting for human input any "
                "more; /events tells whether an answer was taken"
            )
        await self.mailbox.ask(Lines.resume, caller, kickoff_id, feedback, webhooks)
        return await self.execution(caller, kickoff_id, "execution_id")

    async def execution(
        self, caller: Caller, kickoff_id: str, field: str = "kickoff_id"
    ) -> Execution:
        """An execution. Raises `NotFound`, also for one that the caller may not see. `field` is
        what the request calls its id."""
        found = await self._journal.execution(kickoff_id, crew=caller.crew, owner=caller.sees_only)
        return _there(found, field)

    def has_surely_ended(self, caller: Caller, kickoff_id: str) -> bool:
        """Whether it is known to have ended without looking at the disk, as just after its end.
        Then `execution` answers at once. A wait would, too, but takes two tasks."""
        found = self._journal.at_hand(kickoff_id, crew=caller.crew, owner=caller.sees_only)
        return found is not None and found.state.ended

    async def executions(
        self, caller: Caller, *, state: State | None, limit: int, cursor: str | None
    ) -> Page:
        """What the caller may see, newest first. Raises `Invalid` for a cursor not from here."""
        return await self._journal.executions(
            caller.crew, owner=caller.sees_only, state=state, limit=limit, cursor=cursor
        )

    async def wait(self, caller: Caller, kickoff_id: str, seconds: float) -> Execution:
        """The execution when its state has changed, when it has ended, or after `seconds`.

        Raises `NotFound`.
        """
        with self._bells.on(kickoff_id) as bell:
            found = await self.execution(caller, kickoff_id)
            before = found.state
            if before.ended:
                return found
            del found  # it may be large, and the wait long
            with trio.move_on_after(seconds):
                while bell.state in (None, before):
                    await bell.wait()
        return await self.execution(caller, kickoff_id)

    @asynccontextmanager
    async def follow(
        self, caller: Caller, kickoff_id: str, *, after: int
    ) -> AsyncIterator[Following]:
        """Its events numbered above `after`, as they happen. Raises `NotFound`."""
        with self._bells.on(kickoff_id) as bell:
            await self._summary(caller, kickoff_id)
            yield Following(self._journal, kickoff_id, bell, after)

    def listed(self) -> list[ListedCrew]:
        """All crews of the configuration: first those that can run, then the broken ones, each in
        the configuration's order."""
        catalog, loads = self._catalog, self.load()
        crews: list[Crew | BrokenCrew] = [*catalog.crews.values(), *catalog.broken]
        return [
            ListedCrew(
                crew=crew,
                default=crew.name is not None and crew.name == catalog.default,
                # nobody can call the nameless
                paths=() if crew.name is None else tuple(catalog.paths(crew.name)),
                load=loads.get(crew.name or "", CrewLoad()),
            )
            for crew in crews
        ]

    def load(self) -> dict[str, CrewLoad]:
        """What crews have in hand, by their names: all that can run, and others of which something
        still runs, or waits until they are mended; {} while the executor is down."""
        return self._lines.load() if self._lines is not None else {}

    @property
    def ends(self) -> Counter[tuple[str, Status]]:
        """How many executions of each crew have ended as what, since the daemon's start."""
        return self._workplace.ends

    @property
    def waits(self) -> Histogram:
        """How long executions of each crew have waited for their worker."""
        return self._workplace.waits

    @property
    def followers(self) -> int:
        """How many clients wait for news of an execution."""
        return self._bells.count

    async def _summary(self, caller: Caller, kickoff_id: str, field: str = "kickoff_id") -> Summary:
        """How it stands. Raises `NotFound`, as `execution` does."""
        found = await self._journal.summary(kickoff_id, crew=caller.crew, owner=caller.sees_only)
        return _there(found, field)


def _there(found: S | None, field: str) -> S:
    if found is None:
        raise no_such_execution(field)
    return found


def _make_empty(runs: Path) -> None:
    """A worker's folder is removed with it; what a loss of power left behind goes now. The folder
    `runs` itself stays: a disk that is full would not let it be made again."""
    try:
        runs.mkdir(mode=0o700, exist_ok=True)
        why = empty_folder(os.fsencode(runs))
        left = sorted(each.name for each in runs.iterdir())
    except OSError as error:
        raise StateUnusable(
            f"{runs}: the folder for crews' workers cannot be made ({error.strerror}); make the "
            "state directory writable for the daemon's user, and room on its disk"
        ) from None
    if left:
        told = "%s still holds %s, which a worker has left (one of %d): %s"
        logger.warning(told, runs, left[0], len(left), why)
