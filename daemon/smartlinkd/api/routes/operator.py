"""Health, the owner's status of the daemon, and the measurements of the page's *System* view."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Final, Literal

from pydantic import Field
from quart import Response

from smartlinkd.admin.prometheus import CONTENT_TYPE
from smartlinkd.admin.reports import AccountResponse, StatusReport
from smartlinkd.api.auth_guards import Client, Guards, Visitor
from smartlinkd.api.client_address import ApiClient
from smartlinkd.api.operations import Api
from smartlinkd.api.schemas import ClearedResponse, DoneResponse, HealthResponse, ReadyResponse
from smartlinkd.api.services import Services
from smartlinkd.errors import Unavailable
from smartlinkd.monitoring.log_buffer import MAX_RECORDS, LogEntry
from smartlinkd.monitoring.series import HOURS, SeriesName, SeriesPoint
from smartlinkd.wire import In, Parameters

MAX_TEXT: Final = 200
"""Characters of the text that log records are searched for."""


class ReadinessAsked(Parameters):
    account: Annotated[
        Literal["0", "1"], In("query"), Field(description="1: also whether the account is ready")
    ] = "0"


class LogAsked(Parameters):
    level: Annotated[
        Literal["debug", "info", "warning", "error", "critical"],
        In("query"),
        Field(description="records of this level and above"),
    ] = "info"
    q: Annotated[
        str,
        In("query"),
        Field(max_length=MAX_TEXT, description="a text that the record has, in any case"),
    ] = ""
    limit: Annotated[
        int, In("query"), Field(ge=1, le=MAX_RECORDS, description="how many at the most")
    ] = 100


class LogResponse(DoneResponse):
    records: Annotated[list[LogEntry], Field(description="newest first")]


class SeriesAsked(Parameters):
    name: Annotated[SeriesName, In("query"), Field(description="what was measured")]
    hours: Annotated[
        float, In("query"), Field(gt=0, le=HOURS, description="how far back, in hours")
    ] = HOURS


class SeriesResponse(DoneResponse):
    name: SeriesName
    points: Annotated[list[SeriesPoint], Field(description="one a minute, oldest first")]


def add(api: Api, guards: Guards, services: Services) -> None:
    """Add these operations to `api`."""
    browser = services.browser
    for_account = guards.local_or_scoped("status")

    @api.operation("GET", "/api/health", access=guards.anyone, ok=HealthResponse)
    async def health(_: ApiClient) -> HealthResponse:
        """Show that the daemon is up, and if a page can run script in its browser right now."""
        return HealthResponse(
            browser_ready=browser is not None and browser.is_ready, timestamp=datetime.now(UTC)
        )

    @api.operation("GET", "/livez", access=guards.anyone, ok=DoneResponse)
    async def livez(_: ApiClient) -> DoneResponse:
        """Show that the process serves."""
        return DoneResponse()

    @api.operation(
        "GET",
        "/readyz",
        access=guards.anyone,
        asks=ReadinessAsked,
        ok=ReadyResponse,
        errors=(403, 503),
    )
    async def readyz(_: ApiClient, asked: ReadinessAsked) -> ReadyResponse:
        """Show whether every part runs and the browser works; if not, `error` is one word for why.

        With `?account=1` it also shows whether the account can make links. The words for that are
        `no_cookie`, `session_lost` and `paused`. A client that is not local needs a session token
        for it, or an API key with the scope `status`.
        """
        reason: str | None = services.operator.not_ready()
        if asked.account == "1":
            await for_account.admit()
            reason = reason or await services.operator.account_not_ready()
        if reason is not None:
            raise Unavailable(reason, retry_after=2)
        return ReadyResponse()

    @api.operation("GET", "/api/account", access=guards.scoped("status"), ok=AccountResponse)
    async def account(_: Client) -> AccountResponse:
        """Show the stored cookie's age and how the accounts stand with the portal."""
        return await services.operator.account()

    @api.operation(
        "POST", "/api/account/clear", access=guards.scoped("account"), ok=ClearedResponse
    )
    async def clear_account(_: Client) -> ClearedResponse:
        """End every pause. Call it after the portal's question was answered in a browser."""
        return ClearedResponse(cleared=await services.conversion.clear_accounts())

    @api.operation("GET", "/api/status", access=guards.scoped("status"), ok=StatusReport)
    async def status(_: Client) -> StatusReport:
        """Every part with its state, the queues, the browser, and how the account stands."""
        return await services.operator.status()

    @api.operation(
        "GET",
        "/metrics",
        access=guards.local_or_scoped("metrics"),
        ok=Response,
        media="text/plain",
    )
    async def metrics(_: Client) -> Response:
        """Show what was counted and timed since the start, as Prometheus reads it."""
        account = await services.operator.account_at_hand()
        return Response(services.metrics.text(account), content_type=CONTENT_TYPE)

    @api.operation("GET", "/api/log", access=guards.session, asks=LogAsked, ok=LogResponse)
    async def log(_: Visitor, asked: LogAsked) -> LogResponse:
        """Show the last records of the log. The daemon keeps 500 of them in memory."""
        found = services.log_buffer.find(level=asked.level, text=asked.q, limit=asked.limit)
        return LogResponse(records=found)

    @api.operation("GET", "/api/series", access=guards.session, asks=SeriesAsked, ok=SeriesResponse)
    async def series(_: Visitor, asked: SeriesAsked) -> SeriesResponse:
        """Show one series of the last day.

        `conversions` are links made in a minute, `submit_seconds` the mean time of a submit,
        `memory_bytes` the daemon's memory without its browser, `restarts` those of parts and of
        the browser in a minute.
        """
        points = services.recorder.points(asked.name, hours=asked.hours)
        return SeriesResponse(name=asked.name, points=points)
