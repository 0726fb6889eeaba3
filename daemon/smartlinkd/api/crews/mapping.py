"""Bodies of the crews' API, to and from the store's values. Pure."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import datetime

from pydantic import SecretStr

from smartlinkd.api.crews.schemas import (
    Authentication,
    ExecutedTask,
    ListedExecution,
    Progress,
    ResultObject,
    StatusResponse,
    TaskResult,
    Webhooks,
)
from smartlinkd.errors import Invalid
from smartlinkd.net.addresses import Network
from smartlinkd.net.egress_rules import check_url
from smartlinkd.store.model import (
    Execution,
    ExecutionState,
    Summary,
    WebhookKind,
    WebhookTarget,
)


def listed_execution(execution: Summary, now: datetime) -> ListedExecution:
    """Return an execution as it stands in a list."""
    completed = execution.completed_tasks
    return ListedExecution(
        kickoff_id=execution.id,
        state=execution.state.value,
        status=execution.status,
        error=execution.error,
        current_task=execution.current_task,
        # A worker may do more tasks than it announced. Clients divide the one number by the other.
        progress=Progress(
            completed_tasks=completed, total_tasks=max(execution.total_tasks or 0, completed)
        ),
        execution_time=_execution_seconds(execution, now),
        created_at=execution.created_at,
        started_at=execution.started_at,
        finished_at=execution.finished_at,
    )


def status_response(
    execution: Execution, now: datetime, *, as_object: bool, with_inputs: bool
) -> StatusResponse:
    """Return an execution's status. With `as_object` its result holds the tasks as well."""
    tasks = [TaskResult.model_validate(each, from_attributes=True) for each in execution.tasks]
    output = _output(execution)
    result = (
        ResultObject(output=output, tasks=tasks) if as_object and output is not None else output
    )
    last = execution.tasks[-1] if execution.tasks else None
    return StatusResponse(
        **dict(listed_execution(execution, now)),
        result=result,
        result_json=execution.result_json,
        last_executed_task=ExecutedTask.model_validate(last, from_attributes=True)
        if last
        else None,
        last_step=execution.last_step,
        tasks=tasks,
        meta=execution.meta,
        inputs=execution.inputs if with_inputs else None,
    )


def webhook_targets(asked: Webhooks, allow: Sequence[Network]) -> tuple[WebhookTarget, ...]:
    """Return a target for each webhook address that a body gives.

    Raises:
        Invalid: Some may not be called; the text names them all.
    """
    made: list[WebhookTarget] = []
    faults: list[str] = []

    def add(
        field: str,
        kind: WebhookKind,
        url: str | None,
        events: Sequence[str] = (),
        authentication: Authentication | None = None,
    ) -> None:
        if not url:
            return
        header = _authorization(authentication)
        try:
            made.append(WebhookTarget(kind, check_url(field, url, allow), tuple(events), header))
        except Invalid as fault:
            faults.append(str(fault))

    add("taskWebhookUrl", "task", asked.task_webhook_url)
    add("stepWebhookUrl", "step", asked.step_webhook_url)
    add("crewWebhookUrl", "crew", asked.crew_webhook_url)
    if (stream := asked.webhooks) is not None:
        add("webhooks.url", "stream", stream.url, stream.events or (), stream.authentication)
    if (human := asked.human_input_webhook) is not None:
        add("humanInputWebhook.url", "human_input", human.url, (), human.authentication)
    if faults:
        raise Invalid("; ".join(faults))
    return tuple(made)


def _output(execution: Execution) -> str | None:
    """Return the text that clients show as the result, or None before the end.

    Some show nothing else, so a failure's error is here as well; and one of them crashes on a
    success without a result.
    """
    match execution.state:
        case ExecutionState.SUCCESS:
            return execution.result or ""
        case ExecutionState.FAILED:
            return execution.error or execution.status
        case _:
            return None


def _execution_seconds(execution: Summary, now: datetime) -> float | None:
    if execution.started_at is None:
        return None
    seconds = ((execution.finished_at or now) - execution.started_at).total_seconds()
    return max(0.0, round(seconds, 3))  # the wall clock may have been set back meanwhile


def _authorization(given: Authentication | None) -> SecretStr | None:
    """Return an `Authorization` header's value (RFC 6750, section 2.1; RFC 7617, section 2)."""
    if given is None:
        return None
    if given.strategy == "bearer":
        assert given.token is not None  # noqa: S101 - for the type checker: it was checked when read
        return SecretStr(f"Bearer {given.token.get_secret_value()}")
    assert given.password is not None  # noqa: S101 - for the type checker, likewise
    pair = f"{given.username}:{given.password.get_secret_value()}"
    return SecretStr(f"Basic {base64.b64encode(pair.encode()).decode()}")
