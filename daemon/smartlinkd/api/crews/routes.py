"""The operations of every crew, at its base address (docs/crews.md)."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from math import inf
from typing import Final

import trio
from quart import Response, request

from smartlinkd.api.auth_guards import Guards
from smartlinkd.api.crews import sse
from smartlinkd.api.crews.mapping import listed_execution, status_response, webhook_targets
from smartlinkd.api.crews.schemas import (
    MAX_WAIT,
    EventsAsked,
    ExecutionsAsked,
    ExecutionsResponse,
    InputsResponse,
    KickoffAsked,
    KickoffRequest,
    KickoffResponse,
    OneExecution,
    ResumeRequest,
    ResumeResponse,
    StatusAsked,
    StatusResponse,
    StopResponse,
)
from smartlinkd.api.operations import Access, Api
from smartlinkd.api.requests import read_json
from smartlinkd.api.services import CrewServices
from smartlinkd.api.timings import count_only
from smartlinkd.config.crews import LONGEST_GRACE
from smartlinkd.crews.model import CrewUser, Feedback, Kickoff
from smartlinkd.crews.subscriptions import ExecutionEventStream
from smartlinkd.http_server import hold_until_answered
from smartlinkd.nurseries import background, cancel_at
from smartlinkd.store.model import Execution, ExecutionState, IdempotencyKey
from smartlinkd.supervision.calls import ACTOR_TIMEOUT_S, actor_deadline

STOPPING: Final = LONGEST_GRACE + 30.0
"""Seconds for a stop to be answered, which comes when the worker has ended and that is recorded."""


def add(api: Api, guards: Guards, crews: CrewServices) -> None:
    """Add these operations to `api`, whose paths have the parameter `crew`."""

    async def admit() -> CrewUser:
        crew: str = (request.view_args or {})["crew"]
        return await guards.crew_caller(crew, await guards.credential())

    async def admit_shielded() -> CrewUser:
        # A stop is carried out also for a client that has left meanwhile. The shield keeps the
        # request's own deadline out.
        with trio.CancelScope(shield=True), actor_deadline():
            caller = await admit()
        return caller  # noqa: RET504 - to mypy a scope may swallow what ends its block

    member = Access(admit, bearer_use="required", refusals=(401, 403, 503), scope="crews")
    _add_read_routes(api, guards, crews, member)
    _add_write_routes(api, crews, member)
    _add_stop_route(api, crews, replace(member, admit=admit_shielded))


def _add_read_routes(api: Api, guards: Guards, crews: CrewServices, member: Access) -> None:
    executor, app = crews.executor, api.target

    @api.operation("GET", "/", access=member, ok=Response, media="text/plain")
    async def healthy(caller: CrewUser) -> Response:
        """`Healthy` when the crew can be kicked off, as text."""
        executor.catalog.crew(caller.crew)
        return Response("Healthy", content_type="text/plain; charset=utf-8")

    @api.operation("GET", "/inputs", access=member, ok=InputsResponse)
    async def inputs(caller: CrewUser) -> InputsResponse:
        """The names of the inputs that the crew takes."""
        crew = executor.catalog.crew(caller.crew)
        return InputsResponse(inputs=sorted(each.name for each in crew.inputs))

    @api.operation(
        "GET",
        "/status/{kickoff_id}",
        access=member,
        asks=StatusAsked,
        ok=StatusResponse,
        errors=(404, 429),
        seconds=inf,  # as long as the client wants to wait, see below
        also="/{kickoff_id}/status",
    )
    async def execution_status(caller: CrewUser, asked: StatusAsked) -> StatusResponse:
        """How an execution stands, and its result.

        The same at `/{kickoff_id}/status`.
        """
        kickoff_id = asked.kickoff_id
        seconds = min(asked.wait, MAX_WAIT)
        with actor_deadline(seconds + ACTOR_TIMEOUT_S):
            if seconds:
                with app.places.follow((await guards.credential()).token or ""):
                    found = await _wait(crews, app.stopping, caller, kickoff_id, seconds)
                await member.admit()  # the token may have been rotated meanwhile
            else:
                found = await executor.execution(caller, kickoff_id)
        return status_response(
            found,
            datetime.now(UTC),
            as_object=asked.result == "object",
            with_inputs=asked.inputs == "1",
        )

    @api.operation("GET", "/executions", access=member, asks=ExecutionsAsked, ok=ExecutionsResponse)
    async def executions(caller: CrewUser, asked: ExecutionsAsked) -> ExecutionsResponse:
        """The executions that the token may see, newest first."""
        page = await executor.executions(
            caller,
            state=ExecutionState(asked.state) if asked.state else None,
            limit=asked.limit,
            cursor=asked.cursor,
        )
        now = datetime.now(UTC)
        return ExecutionsResponse(
            executions=[listed_execution(each, now) for each in page.executions],
            next_cursor=page.next_cursor,
        )

    @api.operation(
        "GET",
        "/events/{kickoff_id}",
        access=member,
        asks=EventsAsked,
        ok=Response,
        media=sse.MEDIA,
        errors=(404, 429),
    )
    async def execution_events(caller: CrewUser, asked: EventsAsked) -> Response:
        """Follow an execution, as server-sent events.

        Each has an id, and as its data a JSON object {type, timestamp, data}. They begin with the
        first, or after `Last-Event-ID`; the stream closes when the execution has ended.
        """

        def follow() -> AbstractAsyncContextManager[ExecutionEventStream]:
            return executor.follow(caller, asked.kickoff_id, after=asked.last_event_id)

        shown = await guards.credential()
        # The answer is sent after the request's context has ended.
        admitted = partial(guards.crew_caller, caller.crew, shown)
        hold_until_answered(app.places.follow(shown.token or ""))
        async with follow():
            pass  # a refusal can only be answered before the stream begins
        return sse.stream(follow, admitted, app.stopping)


def _add_write_routes(api: Api, crews: CrewServices, member: Access) -> None:
    executor = crews.executor

    @api.operation(
        "POST",
        "/kickoff",
        access=member,
        asks=KickoffAsked,
        body=KickoffRequest,
        ok=KickoffResponse,
        errors=(422,),
    )
    async def kickoff(
        caller: CrewUser, asked: KickoffAsked, body: KickoffRequest
    ) -> KickoffResponse:
        """Start an execution, or queue it.

        It is on disk when this is answered, and known from then on.
        """
        # An `Idempotency-Key` stands for the whole body, unknown keys included.
        given = asked.idempotency_key
        key = None if given is None else IdempotencyKey(given, await read_json())
        # First: only what is new is checked, refused, or waits for its crew.
        earlier = await executor.created_by(caller, key)
        if earlier is not None:
            return KickoffResponse(kickoff_id=earlier)
        webhooks = webhook_targets(body, crews.webhook_networks)
        wanted = Kickoff(inputs=body.inputs or {}, meta=body.meta, webhooks=webhooks)
        return KickoffResponse(kickoff_id=await executor.kickoff(caller, wanted, key))

    @api.operation(
        "POST", "/resume", access=member, body=ResumeRequest, ok=ResumeResponse, errors=(404,)
    )
    async def resume(caller: CrewUser, body: ResumeRequest) -> ResumeResponse:
        """Answer the question of a task that waits for a human.

        Webhook addresses given at the kickoff stay in force; those given here replace them.
        """
        webhooks = webhook_targets(body, crews.webhook_networks)
        feedback = Feedback(body.task_id, body.human_feedback, body.is_approve, webhooks)
        await executor.resume(caller, body.execution_id, feedback)
        message = "not approved: the crew is told so, with the feedback"
        if body.is_approve:
            message = "approved: the execution goes on"
        return ResumeResponse(
            status="resumed" if body.is_approve else "retrying",
            message=message,
            kickoff_id=body.execution_id,
        )


def _add_stop_route(api: Api, crews: CrewServices, member: Access) -> None:

    @api.operation(
        "POST",
        "/stop/{kickoff_id}",
        access=member,
        asks=OneExecution,
        ok=StopResponse,
        errors=(400, 404),
        seconds=STOPPING,
    )
    async def stop(caller: CrewUser, asked: OneExecution) -> StopResponse:
        """End an execution, queued or running. Answered when it has ended."""
        await crews.executor.stop(caller, asked.kickoff_id)
        return StopResponse(kickoff_id=asked.kickoff_id)


async def _wait(
    crews: CrewServices, stopping: trio.Event, caller: CrewUser, kickoff_id: str, seconds: float
) -> Execution:
    """Wait until the execution's state changes, for `seconds`, or until the server stops."""
    count_only()
    with trio.CancelScope() as waiting:
        async with background(partial(cancel_at, stopping, waiting)):
            return await crews.executor.wait(caller, kickoff_id, seconds)
    return await crews.executor.execution(caller, kickoff_id)
