"""One execution, from its turn to its end.

The problem: while a worker talks, its execution may be stopped, answered by a human, run out of
time, or have to be left for the next daemon, and the disk may be full at any of these moments.
Whatever comes, what the worker said is recorded in its order, there is one end, and nothing of the
worker is left.

The choice: one task owns the execution and its worker. Whoever wants something of it leaves a word
(`cut_short`, `leave_off`, `answer`), and the task does it. A full disk holds up the worker, as a
slow reader holds up a pipe, and loses nothing (`workplace.py`). A word that comes while its worker
is being started ends that at once: there is nobody yet who would need a grace.

What has come when a message is heard is recorded together with it (a group commit), so a worker
that says much does not go at the pace of the disk. Its last message is recorded like that, too.

What it has come to is recorded, and told, as soon as it is known: with the worker's last message,
after which its program may need seconds to go. Until it has gone, the execution keeps its place.

The clock of the deadline begins with the worker's start, and stands still while a human is asked,
which has a deadline of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from math import inf

import trio
from pydantic import JsonValue

from smartlinkd.crews.asking import Answer, Question
from smartlinkd.crews.crew import Crew, Feedback
from smartlinkd.crews.ending import Ending, ending_of, failure
from smartlinkd.crews.ledger import Ledger, about, begun, requeued
from smartlinkd.crews.protocol import FromWorker, HumanInput, Inputs, ToolCall, ToolResult
from smartlinkd.crews.starts import ComingUp
from smartlinkd.crews.worker import CannotStart, NoRoom, Worker, start_worker
from smartlinkd.crews.workplace import LAST_ENTRY, Workplace
from smartlinkd.errors import BUG, Invalid, Refused
from smartlinkd.logs import LogContext, bind_log_contexts
from smartlinkd.nurseries import sole_error
from smartlinkd.store.errors import AlreadyFinished
from smartlinkd.store.model import (
    Execution,
    ExecutionState,
    ExecutionUpdate,
    NewExecution,
    Status,
    WebhookTarget,
)

logger = logging.getLogger(__name__)

LAST_WORDS = 8000
"""Characters of a failed worker's standard output, and of its standard error, that are logged: as
many as a record takes with what it says before them (`logs.formats.MAX_MESSAGE_CHARS`)."""

MOST_TOGETHER = 16
"""Messages that are recorded together: nine tenths of what any number would save, and others do
not wait long for the journal, whose visit takes those of all crews."""

NOT_KEPT = "what the worker said cannot be kept"
NOT_STARTED = "its worker was still being started"


class Run:
    """A running execution; `carry_out()` is its task."""

    def __init__(
        self,
        execution_id: str,
        crew: Crew,
        workplace: Workplace,
        *,
        coming_up: ComingUp,
        begun_at: datetime,
        entered: NewExecution | None,
    ) -> None:
        """`coming_up` is its worker's turn to do so, which came at `begun_at`. `entered` is what
        was recorded of it just now, with its beginning. Without it that is still to be read, and
        the beginning to be recorded."""
        self.id = execution_id
        self.ended = trio.Event()
        """Nothing of it is there any more, and its end is recorded; or it is left off."""
        self.grace = crew.worker.grace
        """Seconds that its worker has to end when it is told to."""
        self.outcome: Status | None = None
        """What its end is recorded as, from then on; its worker may still be there."""
        self._crew = crew
        self._workplace = workplace
        self._begun_at = begun_at
        self._coming_up = coming_up
        self._entered = entered
        self._life = trio.CancelScope()
        self._start = trio.CancelScope()
        self._talk = trio.CancelScope()
        self._stage = self._start
        """What `cut_short` and `leave_off` cancel: `_start` until the worker is there, `_talk` from
        then on."""
        self._has_worker = False
        self._held_up = False
        """It waits for room for its worker, which has not begun."""
        self._recording: trio.Nursery
        self._ending: Ending | None = None
        """What it has come to."""
        self._is_recording = False
        """What its worker has said; it is still so when that was cut short."""
        self._unrecorded: Sequence[FromWorker] = ()
        """What came in time and was heard too late: is recorded before the end."""
        self._last_said: Sequence[ExecutionUpdate] = ()
        """Of what came together with its worker's last message: is recorded with the end."""
        self._cut: Ending | None = None
        self._left_off = False
        self._hands: trio.Nursery | None = None
        self._question: Question | None = None
        self._answer: Answer | None = None  # the latest
        self._book: Ledger
        self._kicked_off: datetime

    @property
    def is_leaving(self) -> bool:
        """It has come to an end, which is recorded or being recorded. Its worker may still be on
        its way out."""
        return self._ending is not None

    def cut_short(self, status: Status, error: str) -> None:
        """Have it end as this, unless it comes to an end of its own first."""
        if self._cut is None:
            self._cut = failure(status, error)
        if not self.is_leaving:
            self._stage.cancel()

    def leave_off(self) -> None:
        """Have its worker end, and record nothing, unless it was cut short before, or by its
        deadline: the next start decides what becomes of it. One whose worker was not begun waits
        for its turn again."""
        if self._cut is None and self._stage.cancel_called:  # by its deadline: it was over before
            self._cut = failure(Status.TIMED_OUT, self._too_late())
        self._left_off = True
        self.ended.set()
        self._stage.cancel()
        self._hurry()

    async def answer(self, feedback: Feedback, webhooks: Sequence[WebhookTarget]) -> None:
        """Pass on a human's answer; returns when it is recorded. Raises `Invalid`.

        An asker that gives up takes nothing back, and may send the same again: it is one answer,
        until the same task is asked about again.
        """
        answer, latest = Answer(feedback, tuple(webhooks)), self._answer
        if latest is not None and latest.is_repeated_by(answer, self._question):
            answer = latest
        else:
            self._take_answer(answer)
        await answer.wait_taken()

    def _take_answer(self, answer: Answer) -> None:
        question, latest = self._question, self._answer
        if question is None and latest is not None:
            latest.check_taken()
        if question is None or self._hands is None:
            raise Invalid(f"execution_id: execution {self.id} is not waiting for human input")
        question.check_is_answered_by(answer)
        self._question, self._answer = None, answer
        self._hands.start_soon(self._pass_on, question, answer)

    async def carry_out(self) -> None:
        """Run it to its end, and record that."""
        work = LogContext(crew=self._crew.name, kickoff_id=self.id)
        try:
            # Not any more for the request that kicked it off, or for whoever made room for it.
            with self._life, bind_log_contexts((work,)):
                execution = self._entered or await self._workplace.read(self.id)
                self._book = Ledger(about(execution))
                self._kicked_off = execution.created_at
                async with sole_error(), trio.open_nursery() as self._recording:
                    await self._to_an_end(execution)
            self._coming_up.up()
        finally:
            self.ended.set()

    def _comes_to(self, ending: Ending | None) -> None:
        """Record that it has come to this, if that is an end, and its first one."""
        if self._ending is None and ending is not None:
            self._ending = ending
            self._recording.start_soon(self._end, ending)

    def _hurry(self) -> None:
        """Left off and without a worker, there is nothing to do but to record what is known."""
        if self._left_off and not self._has_worker:
            self._life.deadline = trio.current_time() + LAST_ENTRY

    async def _end(self, ending: Ending) -> None:
        try:
            for first in range(0, len(self._unrecorded), MOST_TOGETHER):
                said = self._unrecorded[first : first + MOST_TOGETHER]
                await self._record(*self._heard(said))
            await self._workplace.end(
                self._crew.name, self._book.subject, ending, after=self._last_said
            )
        except AlreadyFinished:
            # A fault of ours, and no reason to interrupt all others. It has the one end it may.
            logger.exception("execution %s was ended by somebody else while it ran", self.id)
            return
        except Invalid as fault:
            ending = failure(Status.ERROR, f"{NOT_KEPT}: {fault}")
            await self._workplace.end(self._crew.name, self._book.subject, ending)
        self.outcome = ending.status

    async def _to_an_end(self, execution: Execution | NewExecution) -> None:
        """Have it done, and make an end of whatever goes wrong. It has none when it is left off."""
        if self._left_off and self._cut is None and self._entered is None:
            return  # its beginning is not recorded, and need not be
        try:
            if self._entered is None:
                await self._record(begun(self._book.subject, self._begun_at))
                logger.info("crew %s: execution %s runs", self._crew.name, self.id)
            await self._unless_cut_short(execution)
        except CannotStart as fault:
            logger.warning("execution %s: its worker cannot be started: %s", self.id, fault)
            self._comes_to(failure(Status.ERROR, f"the worker could not be started: {fault}"))
        except Invalid as fault:
            self._comes_to(failure(Status.ERROR, f"{NOT_KEPT}: {fault}"))
        except Exception:
            # One execution's fault, ours or not, is no reason to interrupt all others.
            logger.exception("execution %s met a fault of the daemon's own", self.id)
            self._comes_to(failure(Status.ERROR, BUG))

    async def _unless_cut_short(self, execution: Execution | NewExecution) -> None:
        """Have it done as soon as there is room for its worker. What cuts it short before its
        worker is there is its end. Raises `CannotStart`."""
        if self._start.cancel_called:  # before its worker was there
            self._cut_off_before_its_worker(self._cut_ending())
            return
        try:
            with self._start:
                given = self._crew.complete(execution.inputs)
                inputs = Inputs(inputs=given, tools=self._crew.tools)
                try_it = partial(self._try_with_worker, inputs)
                await self._workplace.with_room(f"execution {self.id}", try_it)
                return
            logger.info("execution %s was cut short: %s", self.id, NOT_STARTED)
            ending = self._cut_ending(NOT_STARTED)
            if self._held_up:
                self._cut_off_before_its_worker(ending)
            else:
                self._comes_to(ending)
        finally:
            self._has_worker = False
            self._hurry()

    def _cut_off_before_its_worker(self, ending: Ending | None) -> None:
        """Nothing of it has begun: what is left off waits for its turn again."""
        self._comes_to(ending)
        if ending is None:
            self._recording.start_soon(self._put_back)

    async def _try_with_worker(self, inputs: Inputs) -> None:
        """Have a worker do it within the deadline, which begins now, and anew with the next try
        after `NoRoom`. Raises `CannotStart`."""
        deadline = self._start.deadline = trio.current_time() + self._crew.deadline
        self._has_worker, self._held_up = True, False
        try:
            await self._with_worker(inputs, deadline)
        except NoRoom:
            self._start.deadline = inf  # the wait is not the worker's
            self._held_up = True
            raise

    async def _with_worker(self, inputs: Inputs, deadline: float) -> None:
        """Start one, and listen to it until that ends, or is cut short. Nothing of it is left."""
        async with start_worker(
            self._crew.worker, self.id, inputs, runs=self._workplace.runs
        ) as worker:
            self._workplace.has_waited(self._crew.name, self._kicked_off)
            self._stage = self._talk
            self._talk.deadline, self._start.deadline = deadline, inf
            with self._talk:
                await self._listen(worker)
            if self._talk.cancelled_caught:
                await self._send_away(worker)
            self._tell_last_words(worker)

    async def _send_away(self, worker: Worker) -> None:
        """It is cut short, be it before its end or after that, while its program is leaving."""
        if worker.final is None and self._cut is None and not self._left_off:
            await self._hear_what_came_in_time(worker)
        if worker.final is not None:  # it stands, also when it came just now
            self._comes_to(ending_of(worker.final))
            await worker.hurry()
            return
        how = await worker.stop()
        logger.info("execution %s was cut short: %s", self.id, how.value)
        self._comes_to(self._cut_ending(how.value))  # by a stop that has come meanwhile, too

    async def _hear_what_came_in_time(self, worker: Worker) -> None:
        """Its deadline is over, and we may have been held up ourselves (by a SIGSTOP, say): an end
        that it has told meanwhile stands. Not so when it was the journal that held us up: whether
        what was said before is recorded, nobody knows."""
        if self._is_recording:
            return
        said = await worker.catch_up()
        if worker.final is not None:
            self._unrecorded = said

    def _cut_ending(self, detail: str = "") -> Ending | None:
        """The end of one that is not let come to its own; none when it is left off. `detail` is
        what became of its worker."""
        if self._left_off and self._cut is None:
            return None
        ending = self._cut or failure(Status.TIMED_OUT, self._too_late())
        return replace(ending, error=f"{ending.error}; {detail}") if detail else ending

    def _too_late(self) -> str:
        crew = self._crew
        if self._question is not None:
            return (
                f"nobody answered the question about task {self._question.task_id} within the "
                f"{crew.human_deadline:g} s that its crew gives a human (human_deadline)"
            )
        return f"it ran longer than the {crew.deadline:g} s that its crew may (deadline)"

    async def _listen(self, worker: Worker) -> None:
        """Listen to it until its end, and let it go."""
        async with sole_error(), trio.open_nursery() as hands:
            self._hands = hands
            try:
                async for message in worker.messages:
                    self._coming_up.up()
                    await self._take([message, *worker.at_hand(MOST_TOGETHER - 1)], worker)
            finally:
                self._hands = None  # before the nursery closes: it takes nobody from then on
            hands.cancel_scope.cancel()  # nobody is there who would hear an answer
        self._comes_to(ending_of(await worker.end()))
        self._talk.deadline = inf
        await worker.see_out()

    def _tell_last_words(self, worker: Worker) -> None:
        """For its owner: the error tells the last line at the most, and nothing of what a worker
        was at that was too late. Of one that was stopped, nobody asks why."""
        ending = self._ending
        if ending is None or ending.status not in (Status.ERROR, Status.TIMED_OUT):
            return
        # A traceback is in the error as a rule, and what CrewAI did before it in the output.
        for where, said in (("output", worker.stdout_tail), ("error", worker.stderr_tail)):
            if tail := said[-LAST_WORDS:]:
                text = "execution %s failed; its worker's standard %s ended:\n%s"
                logger.warning(text, self.id, where, tail)

    async def _take(self, messages: Sequence[FromWorker], worker: Worker) -> None:
        """Record what came together, and then do what it asks for."""
        assert self._hands is not None  # noqa: S101 - for the type checker
        entries = self._heard(messages)
        if worker.final is not None:
            self._last_said = entries  # nobody is there any more who would hear an answer
            return
        self._is_recording = True
        await self._record(*entries)
        self._is_recording = False
        for message in messages:
            match message:
                case ToolCall():
                    self._hands.start_soon(self._use_tool, message, worker)
                case HumanInput():
                    self._ask_human(message, worker)

    def _heard(self, messages: Sequence[FromWorker]) -> list[ExecutionUpdate]:
        now, clock = self._now(), trio.current_time()
        return [self._book.heard(message, now, clock) for message in messages]

    def _ask_human(self, message: HumanInput, worker: Worker) -> None:
        now = trio.current_time()
        self._question = Question(message.task_id, worker, self._talk.deadline - now)
        self._talk.deadline = now + self._crew.human_deadline

    async def _pass_on(self, question: Question, answer: Answer) -> None:
        answers_until = self._talk.deadline
        self._talk.deadline = trio.current_time() + question.seconds_left
        approved = answer.feedback.approved
        try:
            answered = self._book.answered(answer.webhooks, approved=approved, now=self._now())
            await self._record(answered)
        except Invalid as fault:  # its webhooks are too many, or owed too much
            answer.refusal = fault
            self._question, self._talk.deadline = question, answers_until
            answer.taken.set()
            await self._record(self._book.refused(question.task_id))
            return
        else:
            self._book.accept(answer.webhooks)
            answer.refusal = None
        finally:
            answer.taken.set()
        await question.pass_on(answer)

    async def _use_tool(self, call: ToolCall, worker: Worker) -> None:
        result, error = await self._tool_result(call)
        await self._record(self._book.tool_used(call, error, self._now()))
        await worker.send(ToolResult(call_id=call.call_id, result=result, error=error))

    async def _tool_result(self, call: ToolCall) -> tuple[JsonValue, str | None]:
        if call.tool not in self._crew.tools:
            known = ", ".join(self._crew.tools) or "none"
            return None, (
                f"tool: this crew may not use {call.tool!r}, but {known}; its configuration grants "
                "it (tools)"
            )
        try:
            tool = self._workplace.tools[call.tool]
            return await tool(self._crew.name, call.arguments), None
        except Refused as refusal:
            return None, str(refusal)

    async def _record(self, *entries: ExecutionUpdate) -> None:
        await self._workplace.record(self.id, ExecutionState.RUNNING, *entries)

    async def _put_back(self) -> None:
        """To where it was before its turn came."""
        try:
            entry = requeued(self._book.subject, self._now(), began=False)
            await self._workplace.record(self.id, ExecutionState.PENDING, entry)
        except Invalid as fault:  # it has as many events or webhook calls as one may have
            logger.warning("execution %s does not wait for its turn again: %s", self.id, fault)

    def _now(self) -> datetime:
        return self._workplace.wall()
