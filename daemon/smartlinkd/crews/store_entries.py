"""The updates that the store records at each moment of an execution: pure rules.

One transaction writes an `ExecutionUpdate`: the change of the execution, the event about it, and
the webhook calls that are due for it. So clients hear of nothing that is not on the disk, and of
everything that is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from pydantic import JsonValue

from smartlinkd.crews.model import Subject
from smartlinkd.crews.outcome import Outcome
from smartlinkd.crews.protocol import (
    FromWorker,
    HumanInput,
    Log,
    Started,
    Step,
    TaskCompleted,
    TaskStarted,
    ToolCall,
)
from smartlinkd.crews.webhooks.payloads import Occurrence, calls_for
from smartlinkd.store.model import (
    Change,
    Execution,
    ExecutionUpdate,
    NewEvent,
    NewExecution,
    Status,
    TaskRecord,
    WebhookTarget,
)

REQUEUED = "crew_execution_requeued"


@dataclass(frozen=True)
class _OpenTask:
    task: TaskStarted
    since: float


def subject_of(execution: Execution | NewExecution) -> Subject:
    """Return what entries say of an execution, and where its webhook calls go."""
    return Subject(execution.id, execution.meta, execution.webhooks)


def ended(subject: Subject, outcome: Outcome, now: datetime) -> ExecutionUpdate:
    """Return the entry of an outcome."""
    good = outcome.status is Status.COMPLETED
    data: dict[str, JsonValue] = {"status": outcome.status.value}
    data |= {"result": outcome.result} if good else {"error": outcome.error}
    change = Change(
        status=outcome.status,
        result=outcome.result,
        result_json=outcome.result_json,
        error=outcome.error,
        current_task=None,
        finished_at=now,
    )
    return _entry(
        subject,
        change,
        NewEvent("crew_kickoff_completed" if good else "crew_kickoff_failed", now, data),
        outcome,
    )


def begun(subject: Subject, now: datetime) -> ExecutionUpdate:
    """Return the entry of an execution that begins."""
    change = Change(status=Status.RUNNING, started_at=now)
    return _entry(subject, change, NewEvent("crew_kickoff_started", now))


def requeued(subject: Subject, now: datetime) -> ExecutionUpdate:
    """Return the entry of an execution that waits for its turn again."""
    change = Change(
        status=Status.PENDING,
        started_at=None,
        current_task=None,
        total_tasks=None,
        last_step=None,
        drop_tasks=True,
    )
    return _entry(subject, change, NewEvent(REQUEUED, now))


@dataclass
class ExecutionProgress:
    """Follows one execution through its worker's messages, and remembers its open tasks."""

    subject: Subject
    asked: str | None = None
    """The id of the task about which a human is asked."""
    _open: dict[str, _OpenTask] = field(default_factory=dict)
    _opened: int = 0
    _has_total: bool = False

    def entry_for(  # noqa: PLR0911 - one a message
        self, message: FromWorker, now: datetime, clock: float
    ) -> ExecutionUpdate:
        """Return the entry of a worker's message that is not its last.

        `clock` is trio's time, in seconds. Tasks are timed by it, since the wall clock can be set.
        """
        match message:
            case Started():
                self._has_total = message.total_tasks is not None
                return ExecutionUpdate(Change(total_tasks=message.total_tasks))
            case TaskStarted():
                return self._task_started(message, now, clock)
            case TaskCompleted():
                return self._task_completed(message, now, clock)
            case Step():
                data = _fields(message)
                return self._note(Change(last_step=data), "agent_step", now, data, message)
            case Log():
                return self._note(Change(), "log", now, _fields(message))
            case ToolCall():
                return self._note(Change(), "tool_usage_started", now, _fields(message))
            case HumanInput():
                self.asked = message.task_id
                change = Change(status=Status.WAITING_FOR_HUMAN_INPUT, current_task=self._current())
                data = _fields(message)
                return self._note(change, "human_input_requested", now, data, message)
            case _:
                raise TypeError(f"`{message.type}` is an end, and not for here")

    def tool_used(self, call: ToolCall, error: str | None, now: datetime) -> ExecutionUpdate:
        """Return the entry of a tool's answer."""
        data: JsonValue = {"call_id": call.call_id, "tool": call.tool, "error": error}
        return self._note(Change(), "tool_usage_finished", now, data)

    def answered(
        self, webhooks: Sequence[WebhookTarget], *, approved: bool, now: datetime
    ) -> ExecutionUpdate:
        """Return the entry of a human's answer, which goes to `subject_with(webhooks)`.

        Nobody is asked from then on.
        """
        asked, self.asked = self.asked, None
        subject = self.subject_with(webhooks)
        change = Change(status=Status.RUNNING, current_task=self._latest())
        if set(subject.webhooks) != set(self.subject.webhooks):
            change["webhooks"] = subject.webhooks
        data: JsonValue = {"task_id": asked, "approved": approved}
        return _entry(subject, change, NewEvent("human_feedback_received", now, data))

    def subject_with(self, webhooks: Sequence[WebhookTarget]) -> Subject:
        """Return the subject with `webhooks` in place of those of their kinds."""
        kinds = {target.kind for target in webhooks}
        kept = (target for target in self.subject.webhooks if target.kind not in kinds)
        return replace(self.subject, webhooks=(*kept, *webhooks))

    def _task_started(self, task: TaskStarted, now: datetime, clock: float) -> ExecutionUpdate:
        self._open[task.task_id] = _OpenTask(task, clock)
        self._opened += 1
        change = Change(current_task=self._current())
        if not self._has_total:
            change["total_tasks"] = self._opened
        return self._note(change, "task_started", now, _fields(task))

    def _task_completed(self, done: TaskCompleted, now: datetime, clock: float) -> ExecutionUpdate:
        opened = self._open.pop(done.task_id)
        record = TaskRecord(
            task_id=done.task_id,
            name=opened.task.name,
            agent=opened.task.agent,
            description=opened.task.description,
            expected_output=opened.task.expected_output,
            output=done.output,
            output_json=done.output_json,
            execution_time=clock - opened.since,
        )
        change = Change(new_tasks=[record], current_task=self._current())
        data: JsonValue = {
            "task_id": record.task_id,
            "name": record.name,
            "agent": record.agent,
            "output": record.output,
            "execution_time": record.execution_time,
        }
        return self._note(change, "task_completed", now, data, record)

    def _current(self) -> str | None:
        """Return the id of the task about which a human is asked, else the latest one's name."""
        return self.asked or self._latest()

    def _latest(self) -> str | None:
        opened = next(reversed(self._open.values()), None)
        return None if opened is None else opened.task.name or opened.task.task_id

    def _note(
        self,
        change: Change,
        kind: str,
        now: datetime,
        data: JsonValue,
        occurrence: Occurrence | None = None,
    ) -> ExecutionUpdate:
        return _entry(self.subject, change, NewEvent(kind, now, data), occurrence)


def _entry(
    subject: Subject,
    change: Change,
    event: NewEvent,
    occurrence: Occurrence | None = None,
) -> ExecutionUpdate:
    return ExecutionUpdate(change, (event,), tuple(calls_for(subject, event, occurrence)))


def _fields(message: FromWorker) -> JsonValue:
    fields: JsonValue = message.model_dump(mode="json", exclude={"type"}, exclude_none=True)
    return fields
