"""Whose turn it is: every crew has a line of its own, and so many executions that may run.

An execution has its turn when its crew has a place for it, and its worker may come up
(`starts.py`). Until then it is PENDING, in the journal too, so that it is as if it had never been
near a turn should the daemon end.

This is the state of one instance of the executor. Everything in hand is a task in one of two
nurseries. `running` has the executions, which are let end in order, and the kickoffs and stops that
are being written down, which have a little time to finish. `errands` has the rest, which can be cut
short at any moment, since the next instance finds it undone.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from uuid import uuid4

import trio

from smartlinkd.crews.again import Again
from smartlinkd.crews.catalog.catalog import Catalog
from smartlinkd.crews.crew import Caller, CrewLoad, Feedback, Kickoff
from smartlinkd.crews.ledger import about, begun
from smartlinkd.crews.line import Line
from smartlinkd.crews.run import Run
from smartlinkd.crews.starts import ComingUp, Starts
from smartlinkd.crews.stopping import Stopping
from smartlinkd.crews.without_line import NEVER_RUN, WithoutLine
from smartlinkd.crews.without_worker import WithoutWorker
from smartlinkd.crews.workplace import LastEntries, Workplace
from smartlinkd.errors import Invalid, Refused, Unavailable, Unprocessable
from smartlinkd.journal.model import (
    IdempotencyKey,
    NewExecution,
    State,
    Status,
    Summary,
    WebhookTarget,
)
from smartlinkd.logs import LogEvent
from smartlinkd.supervision.actor import Call

logger = logging.getLogger(__name__)

TO_END = 15.0
"""Seconds for what is left of a worker to be killed, and for its end to be recorded."""
TO_SETTLE = 5.0
"""Seconds that a stop waits for what is on its way into a line. Less than a stop may take to begin
(`Executor.stop`), so that whoever asks is told what it has waited for."""


class Lines:
    """The lines of all crews that can run."""

    def __init__(
        self,
        catalog: Catalog,
        workplace: Workplace,
        *,
        running: trio.Nursery,
        errands: trio.Nursery,
    ) -> None:
        self._catalog = catalog
        self._workplace = workplace
        self._journal = workplace.journal
        self._running = running
        self._errands = errands
        self._starts = Starts(self._start_more_of_any)
        self._lines = {name: Line(crew) for name, crew in catalog.crews.items()}
        self._last_entries = LastEntries(running)
        self._without_worker = WithoutWorker(
            workplace, errands=errands, last_entries=self._last_entries
        )
        self._again = Again(workplace, self._without_worker)
        self._without_line = WithoutLine(
            workplace, self._without_worker, self._again, errands=errands
        )
        self._left_off = False

    # Beginning and end

    async def go_on(self) -> None:
        """Take up what has not ended. Returns when no kickoff can come in before it."""
        self._errands.start_soon(self._starts.let_be)
        found = await self._workplace.insist("going on", self._journal.unfinished)
        unfinished = sorted(found, key=attrgetter("crew", "sequence"))
        if unfinished:
            logger.info("%d executions have not ended: going on with them", len(unfinished))
        for crew, executions in groupby(unfinished, key=attrgetter("crew")):
            line = self._lines.get(crew)
            if line is None:
                self._without_line.keep_or_end(self._catalog, crew, list(executions))
            else:
                await self._errands.start(self._take_up, line, list(executions))

    async def take(self, catalog: Catalog) -> None:
        """Go by another catalog from now on.

        What runs goes on as it was started. What waits runs as its crew is by then. It waits on if
        its crew is broken now, or may be an entry without a name; it ends if its crew is gone.
        """
        # Without an await, in which an end or a kickoff would find some lines as they are now, and
        # others as they were.
        for name, crew in catalog.crews.items():
            line = self._lines.get(name)
            if line is None:
                line = self._lines[name] = Line(crew)
                line.way_in.acquire_nowait()  # a kickoff comes after what has waited
                self._errands.start_soon(self._take_up_mended, line)
            line.crew, line.held = crew, False
            self._start_more(line)
        self._catalog = catalog
        for line in list(self._lines.values()):
            if line.crew.name not in catalog.crews:
                await self._close(line)
        self._errands.start_soon(self._without_line.end_gone, self._is_gone_with_its_line)

    def leave_off(self) -> None:
        """Have all workers end; what they worked on stays unfinished in the journal."""
        self._left_off = True
        self._last_entries.leave_off()
        for line in self._lines.values():
            line.waiting.clear()
            for run in line.running.values():
                run.leave_off()

    async def _take_up(
        self, line: Line, executions: Sequence[Summary], task_status: trio.TaskStatus[None]
    ) -> None:
        async with line.way_in:
            task_status.started()
            for execution in executions:
                if execution.state is not State.PENDING and not await self._again.begin(
                    line.crew.on_restart, execution
                ):
                    continue
                line.waiting[execution.id] = None
                self._start_more(line)

    async def _take_up_mended(self, line: Line) -> None:
        """Go on with what has waited for this crew since before it had a line. The way in is held
        already, and let go of at the end."""
        try:
            found = await self._without_line.take_out(line.crew.name)
            line.waiting.update(dict.fromkeys(found))
            self._start_more(line)
        finally:
            line.way_in.release()

    async def _close(self, line: Line) -> None:
        async with line.way_in:
            if line.crew.name in self._catalog.crews:
                return  # put back, by a reload that came while this one waited
            line.held = True
            if not self._catalog.is_gone(line.crew.name):
                return
            self._without_worker.end_all(list(line.waiting), Status.INTERRUPTED, NEVER_RUN)
            line.waiting.clear()
        self._drop_if_over(line)

    def _drop_if_over(self, line: Line) -> None:
        """Let go of the line of a crew that is gone, when nobody is in it, or on the way in. If it
        went earlier, nobody would find its executions when a reload has brought the crew back, for
        that has a new line then."""
        over = not line.running and not line.waiting and line.way_in.value
        if over and self._catalog.is_gone(line.crew.name):
            self._lines.pop(line.crew.name, None)

    def _is_gone_with_its_line(self, crew: str) -> bool:
        # While its line is there, one of its executions may have its turn this moment.
        return crew not in self._lines and self._catalog.is_gone(crew)

    # Questions

    async def kickoff(self, caller: Caller, kickoff: Kickoff, key: IdempotencyKey | None) -> str:
        """See `Executor.kickoff`."""
        straight = self._goes_straight_in(caller.crew, kickoff)
        if not straight and (earlier := await self._created_by(caller, key)) is not None:
            return earlier
        crew = self._catalog.crew(caller.crew)
        missing = crew.missing(kickoff.inputs)
        if missing:
            raise Unprocessable(
                f"inputs: these are required and missing: {', '.join(missing)}",
                details={"missing_inputs": list(missing)},
            )
        line = self._lines[crew.name]
        await line.way_in.acquire()
        # A task of ours does it: nothing is lost when the client leaves, or we end, after the write
        # to the journal and before the entry into the line. A shield would do that, too, but wait
        # for ever on a journal that restarts.
        entering = Call[Lines, str](
            "executor", lambda lines: lines._enter(line, caller, kickoff, key)
        )
        self._last_entries.start_soon(entering.answer, self)
        return await entering.wait()

    async def stop(self, caller: Caller, kickoff_id: str) -> Stopping:
        """Begin it, see `Executor.stop`. The execution exists, and the caller may see it."""
        by = f"user {caller.user}" if caller.user else "a holder of the organization token"
        line = await self._settled_line(caller.crew)
        waits = line is None and await self._without_line.has(kickoff_id)
        if waits:  # unless a reload has mended its crew meanwhile
            line = await self._settled_line(caller.crew)
            waits = line is None
        run = None if line is None else line.running.get(kickoff_id)
        if run is not None and run.outcome is None:
            run.cut_short(Status.STOPPED, f"stopped by {by}")
            return Stopping(run.ended, run.grace + TO_END, lambda: run.outcome)
        if line is not None and kickoff_id in line.waiting:
            del line.waiting[kickoff_id]
            waits = True
        if waits and self._without_worker.ending(kickoff_id) is None:
            self._without_worker.stop(kickoff_id, f"stopped by {by} before its turn came")
            self._without_line.forget(kickoff_id)
        ending = self._without_worker.ending(kickoff_id)
        if ending is None:
            raise Invalid("kickoff_id: this execution has ended already")
        return Stopping(ending.over, TO_END, lambda: ending.outcome)

    async def resume(
        self,
        caller: Caller,
        kickoff_id: str,
        feedback: Feedback,
        webhooks: tuple[WebhookTarget, ...],
    ) -> None:
        """See `Executor.resume`. The execution exists, and the caller may see it."""
        line = self._lines.get(caller.crew)
        run = line.running.get(kickoff_id) if line is not None else None
        if run is None:
            raise Invalid("execution_id: this execution is not waiting for human input")
        await run.answer(feedback, webhooks)

    def load(self) -> dict[str, CrewLoad]:
        """See `Executor.load`."""
        others = self._without_line.load()
        return {name: CrewLoad(waiting=count) for name, count in others.items()} | {
            name: CrewLoad(running=len(line.running), waiting=len(line.waiting) + others[name])
            for name, line in self._lines.items()
        }

    # Work

    def _goes_straight_in(self, crew: str, kickoff: Kickoff) -> bool:
        """Whether to go to the journal without asking first what the key stands for. Writing it
        down looks that up as well, and to ask before could be a second wait for the disk. But one
        that would be refused, or has to wait for the way in, is asked about first: it may be a
        repetition, and is then answered as before."""
        found = self._catalog.crews.get(crew)
        if found is None or found.missing(kickoff.inputs):
            return False
        return self._lines[crew].way_in.value > 0

    async def _enter(
        self, line: Line, caller: Caller, kickoff: Kickoff, key: IdempotencyKey | None
    ) -> str:
        """Put a new execution into the journal, then into its line. The way in is held already, and
        let go of at the end."""
        try:
            crew = line.crew.name
            no_way = line.full or crew not in self._catalog.crews  # it may be another one by now
            if no_way and (earlier := await self._created_by(caller, key)) is not None:
                return earlier  # by the one that took the last place just now, say
            self._catalog.crew(crew)
            line.check_room()
            new = NewExecution(
                id=str(uuid4()),
                crew=crew,
                owner=caller.user,
                created_at=self._workplace.wall(),
                inputs=kickoff.inputs,
                meta=kickoff.meta,
                webhooks=kickoff.webhooks,
            )
            try:
                return await self._enter_new(line, new, key)
            except Unavailable:  # what cannot be written to can be read from
                if (earlier := await self._created_by(caller, key)) is not None:
                    return earlier
                raise
        finally:
            line.way_in.release()
            self._drop_if_over(line)

    async def _enter_new(self, line: Line, new: NewExecution, key: IdempotencyKey | None) -> str:
        # Its turn is now if nobody waits: nobody else can come in, since the way in is ours. Then
        # it is entered, and begins, in one write, for each write is a wait for the disk.
        turn = None if line.waiting else self._turn(line)
        entry = None if turn is None else begun(about(new), new.created_at)
        try:
            created = await self._workplace.enter(new, key, entry)
        except Refused:
            _give_back(turn)
            raise
        if not created.is_new:
            _give_back(turn)
            return created.id
        told = LogEvent.EXECUTION_ACCEPTED(crew=line.crew.name, kickoff_id=new.id)
        becomes = "is accepted and waits" if turn is None else "is accepted and runs"
        logger.info("crew %s: execution %s %s", line.crew.name, new.id, becomes, extra=told)
        if turn is None:
            line.waiting[new.id] = None
            self._start_more(line)  # its turn may have come meanwhile
        else:
            self._start(line, new.id, turn, new.created_at, entered=new)
        return created.id

    async def _created_by(self, caller: Caller, key: IdempotencyKey | None) -> str | None:
        if key is None:
            return None
        return await self._journal.created_by(caller.crew, caller.user, key)

    async def _settled_line(self, crew: str) -> Line | None:
        """A crew's line, when nothing is on its way into it."""
        with trio.move_on_after(TO_SETTLE) as patience:
            await self._without_line.wait_put_back(crew)
            if (line := self._lines.get(crew)) is not None:
                async with line.way_in:
                    pass
        if patience.cancelled_caught:
            raise Unavailable(
                "this crew's executions are still being loaded or recorded, which waits for the "
                "disk; nothing was stopped; try again",
                retry_after=5,
            )
        return line

    def _turn(self, line: Line) -> ComingUp | None:
        """The turn of whoever is next in this line, if that is now."""
        has_room = line.has_place and self._starts.has_room(line.crew.name)
        is_now = has_room and not self._left_off
        return self._starts.begin(line.crew.name) if is_now else None

    def _start_more(self, line: Line) -> None:
        """Start the next ones, as many as may run, and come up."""
        while line.waiting and (turn := self._turn(line)):
            kickoff_id = next(iter(line.waiting))
            del line.waiting[kickoff_id]
            self._start(line, kickoff_id, turn, self._workplace.wall())

    def _start_more_of_any(self) -> None:
        """Somebody has come up, so others may: those of crews with the fewest that do, first."""
        waiting = [line for line in self._lines.values() if line.waiting]
        for line in sorted(waiting, key=lambda line: self._starts.of(line.crew.name)):
            self._start_more(line)

    def _start(
        self,
        line: Line,
        kickoff_id: str,
        turn: ComingUp,
        begun_at: datetime,
        entered: NewExecution | None = None,
    ) -> None:
        run = line.running[kickoff_id] = Run(
            kickoff_id,
            line.crew,
            self._workplace,
            coming_up=turn,
            begun_at=begun_at,
            entered=entered,
        )
        if self._left_off:  # while its beginning was recorded
            run.leave_off()
        self._running.start_soon(self._carry_out, line, run)

    async def _carry_out(self, line: Line, run: Run) -> None:
        await run.carry_out()
        del line.running[run.id]
        self._start_more(line)
        self._drop_if_over(line)


def _give_back(turn: ComingUp | None) -> None:
    """Nobody has made use of it."""
    if turn is not None:
        turn.up()
