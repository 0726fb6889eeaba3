"""An execution as it is told to clients: pure, from the journal's record to the answer's model."""

from __future__ import annotations

from datetime import datetime

from smartlinkd.api.crews.schemas import (
    ExecutedTask,
    ListedExecution,
    Progress,
    ResultObject,
    StatusResponse,
    TaskResult,
)
from smartlinkd.store.model import Execution, ExecutionState, Summary, TaskRecord


def listed(execution: Summary, now: datetime) -> ListedExecution:
    """An execution in a list."""
    return ListedExecution(
        kickoff_id=execution.id,
        state=execution.state.value,
        status=execution.status.value,
        error=execution.error,
        current_task=execution.current_task,
        progress=_progress(execution),
        execution_time=_execution_time(execution, now),
        created_at=execution.created_at,
        started_at=execution.started_at,
        finished_at=execution.finished_at,
    )


def status(
    execution: Execution, now: datetime, *, as_object: bool, with_inputs: bool
) -> StatusResponse:
    """Return an execution's status. With `as_object` its result holds the tasks as well."""
    tasks = [_task(each) for each in execution.tasks]
    output = _output(execution)
    result = (
        ResultObject(output=output, tasks=tasks) if as_object and output is not None else output
    )
    return StatusResponse(
        **dict(listed(execution, now)),
        result=result,
        result_json=execution.result_json,
        last_executed_task=_last(execution.tasks[-1]) if execution.tasks else None,
        last_step=execution.last_step,
        tasks=tasks,
        meta=execution.meta,
        inputs=execution.inputs if with_inputs else None,
    )


def _progress(execution: Summary) -> Progress:
    completed = execution.completed_tasks
    # A worker may do more tasks than it told of. Clients divide the one number by the other.
    return Progress(
        completed_tasks=completed, total_tasks=max(execution.total_tasks or 0, completed)
    )


def _output(execution: Execution) -> str | None:
    """What clients show as the result. Some show nothing else, so a failure is told here as well;
    and one of them crashes on a success without a result.
    """
    match execution.state:
        case ExecutionState.SUCCESS:
            return execution.result or ""
        case ExecutionState.FAILED:
            return execution.error or execution.status
        case _:
            return None


def _execution_time(execution: Summary, now: datetime) -> float | None:
    if execution.started_at is None:
        return None
    seconds = ((execution.finished_at or now) - execution.started_at).total_seconds()
    return max(0.0, round(seconds, 3))  # the wall clock may have been set back meanwhile


def _task(task: TaskRecord) -> TaskResult:
    return TaskResult(
        task_id=task.task_id,
        name=task.name,
        agent=task.agent,
        output=task.output,
        execution_time=task.execution_time,
    )


def _last(task: TaskRecord) -> ExecutedTask:
    return ExecutedTask(
        name=task.name, agent=task.agent, description=task.description, output=task.output
    )
