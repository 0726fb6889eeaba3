"""What the journal records of each moment of an execution: pure rules, no I/O.

An `Entry` goes to the disk as a whole, alone or `together` with its neighbours: what is different
about the execution, the events that tell of it, and the webhook calls that are owed for it. So
nobody is ever told of what is not on disk, and nothing that is on disk is told to nobody.

`Ledger` follows one execution through its worker's messages; it remembers the tasks that are open,
because the journal is told of a task when it is completed. The functions beside it are for what
happens to an execution that has no worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from pydantic import JsonValue

from smartlinkd.crews.ending import About, Ending
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
from smartlinkd.crews.webhooks.payloads import calls_for
from smartlinkd.journal.model import (
    Change,
    Entry,
    Execution,
    NewEvent,
    NewExecution,
    Status,
    TaskRecord,
    WebhookTarget,
)

REQUEUED = "crew_execution_requeued"
NOT_BEGUN: Final[JsonValue] = {"began": False}
"""The data of such an event, where there was no worker yet. Any other has none."""


def together(entries: Sequence[Entry]) -> Entry:
    """What comes of all of these, in their order."""
    change = Change()
    for entry in entries:
        change |= entry.change
    if tasks := [task for entry in entries for task in entry.change.get("new_tasks", ())]:
        change["new_tasks"] = tasks
    return Entry(
        change,
        tuple(event for entry in entries for event in entry.events),
        tuple(delivery for entry in entries for delivery in entry.deliveries),
    )


@dataclass(frozen=True)
class _OpenTask:
    task: TaskStarted
    since: float


def about(execution: Execution | NewExecution) -> About:
    """What every webhook call about an execution says of it, and where they go."""
    return About(execution.id, execution.meta, execution.webhooks)


def ended(subject: About, ending: Ending, now: datetime) -> Entry:
    """The end, whoever brought it about."""
    good = ending.status is Status.COMPLETED
    data: dict[str, JsonValue] = {"status": ending.status.value}
    data |= {"result": ending.result} if good else {"error": ending.error}
    change = Change(
        status=ending.status,
        result=ending.result,
        result_json=ending.result_json,
        error=ending.error,
        current_task=None,
        finished_at=now,
    )
    return _entry(
        subject,
        change,
        NewEvent("crew_kickoff_completed" if good else "crew_kickoff_failed", now, data),
        ending,
    )


def begun(subject: About, now: datetime) -> Entry:
    """Its turn has come."""
    change = Change(status=Status.RUNNING, started_at=now)
    return _entry(subject, change, NewEvent("crew_kickoff_started", now))


def requeued(subject: About, now: datetime, *, began: bool = True) -> Entry:
    """It was running when the daemon ended, and is to run again from its beginning; or it had not
    begun, since there was no room for its worker, or its turn came as the daemon ended."""
    change = Change(
        status=Status.PENDING,
        started_at=None,
        current_task=None,
        total_tasks=None,
        last_step=None,
        drop_tasks=True,
    )
    return _entry(subject, change, NewEvent(REQUEUED, now, None if began else NOT_BEGUN))


@dataclass
class Ledger:
    """One execution while its worker runs."""

    subject: About
    _open: dict[str, _OpenTask] = field(default_factory=dict)
    _asked: str | None = None
    """The task about which a human is asked."""
    _opened: int = 0
    _total_is_told: bool = False

    def heard(  # noqa: PLR0911 - one a message
        self, message: FromWorker, now: datetime, clock: float
    ) -> Entry:
        """Its worker has said something; not its end. `clock` is trio's, by which tasks are timed:
        the one of `now` may be set meanwhile."""
        match message:
            case Started():
                self._total_is_told = message.total_tasks is not None
                return Entry(Change(total_tasks=message.total_tasks))
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
                self._asked = message.task_id
                change = Change(status=Status.WAITING_FOR_HUMAN_INPUT, current_task=self._current())
                data = _fields(message)
                return self._note(change, "human_input_requested", now, data, message)
            case _:
                raise TypeError(f"`{message.type}` is an end, and not for here")

    def tool_used(self, call: ToolCall, error: str | None, now: datetime) -> Entry:
        """A tool has answered the worker."""
        data: JsonValue = {"call_id": call.call_id, "tool": call.tool, "error": error}
        return self._note(Change(), "tool_usage_finished", now, data)

    def answered(
        self, webhooks: Sequence[WebhookTarget], *, approved: bool, now: datetime
    ) -> Entry:
        """A human has answered. `webhooks` take the place of those of their kinds.

        From now on nobody is asked. The journal may refuse the webhooks: then there is `refused`,
        and else `accept`, from which on what is said goes to them.
        """
        asked, self._asked = self._asked, None
        subject = _with(self.subject, webhooks)
        change = Change(status=Status.RUNNING, current_task=self._latest())
        if webhooks:
            change["webhooks"] = subject.webhooks
        data: JsonValue = {"task_id": asked, "approved": approved}
        return _entry(subject, change, NewEvent("human_feedback_received", now, data))

    def accept(self, webhooks: Sequence[WebhookTarget]) -> None:
        """The answer that came with `webhooks` is recorded."""
        self.subject = _with(self.subject, webhooks)

    def refused(self, task_id: str) -> Entry:
        """The journal refused the answer: the same question is open again, and its task is the
        current one, whatever was started meanwhile."""
        self._asked = task_id
        return Entry(Change(current_task=task_id))

    def _task_started(self, task: TaskStarted, now: datetime, clock: float) -> Entry:
        self._open[task.task_id] = _OpenTask(task, clock)
        self._opened += 1
        change = Change(current_task=self._current())
        if not self._total_is_told:
            change["total_tasks"] = self._opened
        return self._note(change, "task_started", now, _fields(task))

    def _task_completed(self, done: TaskCompleted, now: datetime, clock: float) -> Entry:
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
        """The task at hand: the one that a human is asked about, by the id that the answer takes,
        else the latest that is open, as people know it."""
        return self._asked or self._latest()

    def _latest(self) -> str | None:
        opened = next(reversed(self._open.values()), None)
        return None if opened is None else opened.task.name or opened.task.task_id

    def _note(
        self,
        change: Change,
        kind: str,
        now: datetime,
        data: JsonValue,
        what: Step | TaskRecord | HumanInput | None = None,
    ) -> Entry:
        return _entry(self.subject, change, NewEvent(kind, now, data), what)


def _with(subject: About, webhooks: Sequence[WebhookTarget]) -> About:
    """The same with `webhooks` in the place of those of their kinds."""
    kinds = {target.kind for target in webhooks}
    kept = (target for target in subject.webhooks if target.kind not in kinds)
    return replace(subject, webhooks=(*kept, *webhooks))


def _entry(
    subject: About,
    change: Change,
    event: NewEvent,
    what: Step | TaskRecord | HumanInput | Ending | None = None,
) -> Entry:
    return Entry(change, (event,), tuple(calls_for(subject, event, what)))


def _fields(message: FromWorker) -> JsonValue:
    fields: JsonValue = message.model_dump(mode="json", exclude={"type"}, exclude_none=True)
    return fields
