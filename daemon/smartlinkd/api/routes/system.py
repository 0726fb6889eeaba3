"""Log records and measurements, for the page's *System* view."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from smartlinkd.api.auth_guards import Guards
from smartlinkd.api.operations import Api
from smartlinkd.api.requests import In, Parameters
from smartlinkd.api.services import Services
from smartlinkd.auth.actor import Session
from smartlinkd.monitoring.log_buffer import MAX_RECORDS
from smartlinkd.monitoring.series import HOURS, SeriesName
from smartlinkd.wire import Body, Timestamp

MAX_TEXT = 200


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


class LogEntry(Body):
    """One record of the daemon's log."""

    at: Timestamp
    level: str
    logger: str
    message: str
    actor: Annotated[str | None, Field(description="the part that wrote it")]
    event: Annotated[str | None, Field(description="set for what a monitor may look for")]
    request_id: str | None


class LogResponse(Body):
    ok: Literal[True] = True
    records: Annotated[list[LogEntry], Field(description="newest first")]


class SeriesAsked(Parameters):
    name: Annotated[SeriesName, In("query"), Field(description="what was measured")]
    hours: Annotated[
        float, In("query"), Field(gt=0, le=HOURS, description="how far back, in hours")
    ] = HOURS


class SeriesPoint(Body):
    at: Timestamp
    value: Annotated[float | None, Field(description="null where there was nothing to measure")]


class SeriesResponse(Body):
    ok: Literal[True] = True
    name: SeriesName
    points: Annotated[list[SeriesPoint], Field(description="one a minute, oldest first")]


def add(api: Api, guards: Guards, services: Services) -> None:
    """Add these operations to `api`."""

    @api.operation("GET", "/api/log", access=guards.session, asks=LogAsked, ok=LogResponse)
    async def log(_: Session, asked: LogAsked) -> LogResponse:
        """Show the last records of the log. The daemon keeps 500 of them in memory."""
        found = services.log_buffer.find(level=asked.level, text=asked.q, limit=asked.limit)
        return LogResponse(
            records=[
                LogEntry(
                    at=record.at,
                    level=record.level,
                    logger=record.logger,
                    message=record.message,
                    actor=record.actor,
                    event=record.event,
                    request_id=record.request_id,
                )
                for record in found
            ]
        )

    @api.operation("GET", "/api/series", access=guards.session, asks=SeriesAsked, ok=SeriesResponse)
    async def series(_: Session, asked: SeriesAsked) -> SeriesResponse:
        """Show one series of the last day.

        `conversions` are links made in a minute, `submit_seconds` the mean time of a submit,
        `memory_bytes` the daemon's memory without its browser, `restarts` those of parts and of
        the browser in a minute.
        """
        points = services.recorder.points(asked.name, hours=asked.hours)
        return SeriesResponse(
            name=asked.name,
            points=[SeriesPoint(at=point.at, value=point.value) for point in points],
        )
