"""One execution, from its turn to its outcome.

One task owns the execution and its worker. `cancel` and `suspend` leave it a note and cancel its
stage; `answer` gives it a child task. So there is one outcome, what the worker said is recorded in
its order, and nothing of the worker is left. See docs/decisions/066-one-task-an-execution.md.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path

import trio
from pydantic import JsonValue

from smartlinkd.crews.model import Crew, Feedback
from smartlinkd.crews.outcome import Outcome, outcome_of
from smartlinkd.crews.protocol import (
    FromWorker,
    HumanFeedback,
    HumanInput,
    Inputs,
    ToolCall,
    ToolResult,
)
from smartlinkd.crews.recorder import ExecutionRecorder
from smartlinkd.crews.store_entries import ExecutionProgress, begun, subject_of
from smartlinkd.crews.tools import Tool
from smartlinkd.crews.worker import CannotStart, Worker, start_worker
from smartlinkd.errors import BUG, Invalid, Refused, Unavailable
from smartlinkd.logs import LogContext, bind_log_contexts
from smartlinkd.nurseries import sole_error
from smartlinkd.store.model import (
    Execution,
    ExecutionState,
    ExecutionUpdate,
    NewExecution,
    Status,
)

logger = logging.getLogger(__name__)

MAX_LOGGED_OUTPUT = 8000
"""Characters of a failed worker's standard output, and of its standard error, that are logged. The
record has room for the words before them, too (`logs.formats.MAX_MESSAGE_CHARS`)."""

NOT_KEPT = "what the worker said cannot be kept"
NOT_STARTED = "its worker was still being started"
NOT_WAITING = (
    "execution_id: this execution is not waiting for human input; /events tells whether an answer "
    "was taken"
)


@dataclass(frozen=True)
class ExecutionContext:
    """The things that all executions use. Each worker has a folder of its own in `runs`."""

    recorder: ExecutionRecorder
    tools: Mapping[str, Tool]
    runs: Path


@dataclass(frozen=True)
class Question:
    """A question to a human. `seconds_left` is what is left of the execution's deadline."""

    task_id: str
    worker: Worker
    seconds_left: float


@dataclass
class HumanAnswer:
    """A human's answer. Once `settled` is set it is recorded, or `refusal` says why not."""

    feedback: Feedback
    settled: trio.Event = field(default_factory=trio.Event, compare=False)
    refusal: str | None = field(default=NOT_WAITING, compare=False)


class Completion:
    """The end of an execution, for clients that wait for a stop.

    `ended` is set when nothing is left of the worker, or when this instance of the executor ends.
    `status` is None until the outcome is recorded.
    """

    def __init__(self, timeout_s: float) -> None:
        self.ended = trio.Event()
        self.status: Status | None = None
        self._timeout_s = timeout_s

    async def wait_stopped(self) -> None:
        """Wait until the execution has ended because of a stop.

        Raises `Invalid` if it had another outcome before, and `Unavailable` if the outcome is not
        recorded in time, or the executor has ended.
        """
        with trio.move_on_after(self._timeout_s):
            await self.ended.wait()
        if self.status is None:
            raise Unavailable(
                "it is being stopped, but its end is not recorded yet: the disk may be full, or "
                "the daemon is restarting; ask /status later, and stop it again if it goes on",
                retry_after=5,
            )
        if self.status is not Status.STOPPED:
            raise Invalid("kickoff_id: this execution ended by itself before it was stopped")


class RunningExecution:
    """An execution that has a slot of its crew. `run()` is its task."""

    def __init__(
        self, execution_id: str, crew: Crew, context: ExecutionContext, new: NewExecution | None
    ) -> None:
        """`new` is the execution if its beginning was recorded with it. Else it is read."""
        self.id = execution_id
        self.completion = Completion(
            crew.worker.grace + context.recorder.limits.completion_timeout_s
        )
        self.worker_started = trio.Event()
        """Set when the worker has said something or had its time for it, or there will be none."""
        self._crew = crew
        self._new = new
        self._context = context
        self._recorder = context.recorder
        self._progress: ExecutionProgress
        # The current stage is what `cancel` and `suspend` cancel. A worker that is being started
        # is killed at once, one that talks is stopped with its grace.
        self._start_scope = trio.CancelScope()
        self._talk_scope = trio.CancelScope()
        self._stage = self._start_scope
        self._write_scope = trio.CancelScope()
        self._recording: trio.Nursery
        self._has_worker = False
        self._tasks: trio.Nursery | None = None
        self._why_stopped = ""
        self._is_suspended = False
        self._outcome: Outcome | None = None
        self._question: Question | None = None
        self._latest_answer: HumanAnswer | None = None

    @property
    def has_finished(self) -> bool:
        """True once the outcome is known. The worker process may still be exiting."""
        return self._outcome is not None

    def cancel(self, why: str) -> None:
        """End the execution as stopped, unless it has an outcome or was cancelled before."""
        self._why_stopped = self._why_stopped or why
        if not self.has_finished:
            self._stage.cancel()

    def suspend(self) -> None:
        """Stop the worker and record no outcome, so that the next instance decides about it.

        An execution that was cancelled still gets its outcome.
        """
        self._is_suspended = True
        self.completion.ended.set()
        self._stage.cancel()
        self._limit_last_writes()

    async def answer(self, feedback: Feedback) -> None:
        """Pass a human's answer to the worker. Return when it is recorded.

        A client that disconnects does not cancel its answer. A repeated answer counts once, until
        the task asks its next question. Raises `Invalid` as `Executor.resume` does.
        """
        question, latest = self._question, self._latest_answer
        answer = HumanAnswer(feedback)
        is_asked = question is not None and question.task_id == feedback.task_id
        if latest is not None and latest == answer and not is_asked:
            answer = latest
        elif question is None or self._tasks is None:
            raise Invalid(NOT_WAITING)
        elif not is_asked:
            raise Invalid(
                "task_id: is not the task about which a human is asked; that one is current_task "
                "in the answer of /status"
            )
        else:
            self._question, self._latest_answer = None, answer
            self._tasks.start_soon(self._pass_on, question, answer)
        await answer.settled.wait()
        if answer.refusal is not None:
            raise Invalid(answer.refusal)

    async def run(self) -> None:
        """Run the execution until its outcome is recorded and nothing of its worker is left."""
        work = LogContext(crew=self._crew.name, kickoff_id=self.id)
        try:
            # The log context of whoever kicked it off, or freed its slot, ends here.
            with self._write_scope, bind_log_contexts((work,)):
                execution = self._new or await self._recorder.read(self.id)
                self._progress = ExecutionProgress(subject_of(execution))
                async with sole_error(), trio.open_nursery() as self._recording:
                    await self._run(execution)
        finally:
            self.worker_started.set()
            self.completion.ended.set()

    async def _run(self, execution: Execution | NewExecution) -> None:
        """Have a worker do it. What goes wrong becomes the outcome."""
        try:
            await self._run_worker(execution)
        except CannotStart as fault:
            logger.warning("execution %s: its worker cannot be started: %s", self.id, fault)
            self._finish(Outcome(Status.ERROR, error=f"the worker could not be started: {fault}"))
        except Invalid as fault:
            self._finish(Outcome(Status.ERROR, error=f"{NOT_KEPT}: {fault}"))
        except Exception:
            # A fault of one execution, or of ours in it, must not interrupt the others.
            logger.exception("execution %s met a fault of the daemon's own", self.id)
            self._finish(Outcome(Status.ERROR, error=BUG))

    # The worker

    async def _run_worker(self, execution: Execution | NewExecution) -> None:
        """Run a worker to its deadline, counted from its start. Raises `CannotStart`, `Invalid`."""
        inputs = Inputs(inputs=self._crew.complete(execution.inputs), tools=self._crew.tools)
        settings, runs = self._crew.worker, self._context.runs
        try:
            with self._start_scope:
                if self._new is None:
                    await self._record(begun(self._progress.subject, self._recorder.wall()))
                logger.info("crew %s: execution %s runs", self._crew.name, self.id)
                deadline = self._start_scope.deadline = trio.current_time() + self._crew.deadline
                self._has_worker = True
                async with start_worker(settings, self.id, inputs, runs=runs) as worker:
                    self._recorder.observe_wait(self._crew.name, execution.created_at)
                    self._stage = self._talk_scope
                    self._talk_scope.deadline, self._start_scope.deadline = deadline, inf
                    with self._talk_scope:
                        await self._listen(worker)
                    if self._talk_scope.cancelled_caught:
                        await self._stop_worker(worker)
                    self._log_output_of_failure(worker)
            if self._start_scope.cancelled_caught:
                logger.info("execution %s was cut short: %s", self.id, NOT_STARTED)
                self._finish(self._cancelled_outcome(NOT_STARTED))
        finally:
            self._has_worker = False
            self._limit_last_writes()

    async def _listen(self, worker: Worker) -> None:
        """Handle the worker's messages until its last one, then wait for its process."""
        async with sole_error(), trio.open_nursery() as tasks:
            self._tasks = tasks
            try:
                async for message in worker.channel:
                    self.worker_started.set()
                    await self._handle(message, worker)
            finally:
                self._tasks = None  # before the nursery closes: it takes no task from then on
            tasks.cancel_scope.cancel()  # nobody is there who would hear an answer
        self._finish(outcome_of(await worker.exit_reason()))
        self._talk_scope.deadline = inf
        await worker.drain()

    async def _stop_worker(self, worker: Worker) -> None:
        if (final := worker.final) is not None:  # what it said of its end stands
            self._finish(outcome_of(final))
            await worker.terminate()
            return
        how = await worker.stop()
        logger.info("execution %s was cut short: %s", self.id, how.value)
        self._finish(self._cancelled_outcome(how.value))

    async def _handle(self, message: FromWorker, worker: Worker) -> None:
        """Record a message, then do what it asks for."""
        assert self._tasks is not None  # noqa: S101 - for the type checker
        now, clock = self._recorder.wall(), trio.current_time()
        await self._record(self._progress.entry_for(message, now, clock))
        match message:
            case ToolCall():
                self._tasks.start_soon(self._use_tool, message, worker)
            case HumanInput():
                self._ask_human(message, worker)

    def _log_output_of_failure(self, worker: Worker) -> None:
        """Log the end of a failed worker's output, for the owner."""
        if self._outcome is None or self._outcome.status not in (Status.ERROR, Status.TIMED_OUT):
            return
        # A traceback is on standard error as a rule, and what CrewAI did before it on the other.
        for where, said in (("output", worker.stdout_tail), ("error", worker.stderr_tail)):
            if tail := said[-MAX_LOGGED_OUTPUT:]:
                text = "execution %s failed; its worker's standard %s ended:\n%s"
                logger.warning(text, self.id, where, tail)

    async def _use_tool(self, call: ToolCall, worker: Worker) -> None:
        result, error = await self._tool_result(call)
        await self._record(self._progress.tool_used(call, error, self._recorder.wall()))
        await worker.channel.send(ToolResult(call_id=call.call_id, result=result, error=error))

    async def _tool_result(self, call: ToolCall) -> tuple[JsonValue, str | None]:
        if call.tool not in self._crew.tools:
            known = ", ".join(self._crew.tools) or "none"
            return None, (
                f"tool: this crew may not use {call.tool!r}, but {known}; its configuration grants "
                "it (tools)"
            )
        try:
            tool = self._context.tools[call.tool]
            return await tool(self._crew.name, call.arguments), None
        except Refused as refusal:
            return None, str(refusal)

    # Human input. The deadline stands still while a human is asked, who has one of their own.

    def _ask_human(self, message: HumanInput, worker: Worker) -> None:
        now = trio.current_time()
        self._question = Question(message.task_id, worker, self._talk_scope.deadline - now)
        self._talk_scope.deadline = now + self._crew.human_deadline

    async def _pass_on(self, question: Question, answer: HumanAnswer) -> None:
        human_deadline = self._talk_scope.deadline
        self._talk_scope.deadline = trio.current_time() + question.seconds_left
        said, now = answer.feedback, self._recorder.wall()
        try:
            entry = self._progress.answered(said.webhooks, approved=said.approved, now=now)
            await self._record(entry)
            answer.refusal = None
        except Invalid as fault:  # nothing is recorded, so the question stands
            answer.refusal = str(fault)
            self._question, self._progress.asked = question, question.task_id
            self._talk_scope.deadline = human_deadline
            return
        finally:
            answer.settled.set()
        # Not before: the store may have refused these, and would refuse calls to them.
        self._progress.subject = self._progress.subject_with(said.webhooks)
        await question.worker.channel.send(
            HumanFeedback(task_id=question.task_id, feedback=said.text, approved=said.approved)
        )

    # The outcome

    def _finish(self, outcome: Outcome | None) -> None:
        """Record the outcome, unless there is none or it is not the first."""
        if self._outcome is None and outcome is not None:
            self._outcome = outcome
            self._recording.start_soon(self._record_outcome, outcome)

    def _cancelled_outcome(self, detail: str) -> Outcome | None:
        """Return the outcome of an execution that was cancelled; None if it was suspended."""
        if self._why_stopped:
            return Outcome(Status.STOPPED, error=f"{self._why_stopped}; {detail}")
        if self._is_suspended:
            return None
        return Outcome(Status.TIMED_OUT, error=f"{self._timeout_error()}; {detail}")

    def _timeout_error(self) -> str:
        crew = self._crew
        if self._question is not None:
            return (
                f"nobody answered the question about task {self._question.task_id} within the "
                f"{crew.human_deadline:g} s that its crew gives a human (human_deadline)"
            )
        return f"it ran longer than the {crew.deadline:g} s that its crew may (deadline)"

    async def _record_outcome(self, outcome: Outcome) -> None:
        crew, subject = self._crew.name, self._progress.subject
        try:
            await self._recorder.finish(crew, subject, outcome)
        except Invalid as fault:
            outcome = Outcome(Status.ERROR, error=f"{NOT_KEPT}: {fault}")
            await self._recorder.finish(crew, subject, outcome)
        self.completion.status = outcome.status

    async def _record(self, entry: ExecutionUpdate) -> None:
        await self._recorder.record(self.id, ExecutionState.RUNNING, entry)

    def _limit_last_writes(self) -> None:
        """Give what is being recorded a little time, once suspended and without a worker."""
        if self._is_suspended and not self._has_worker:
            limit = self._recorder.limits.last_write_s
            self._write_scope.deadline = trio.current_time() + limit
