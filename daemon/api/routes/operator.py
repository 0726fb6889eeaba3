"""Health and the operator's own endpoints."""

from __future__ import annotations

from datetime import UTC, datetime

from quart import Response

from daemon.api.access import Caller
from daemon.api.guards import Guards
from daemon.api.openapi import Api
from daemon.api.schemas import AliveResponse, HealthResponse, ReadyResponse
from daemon.api.services import Services
from daemon.auth.actor import Session
from daemon.errors import Unavailable
from daemon.metrics import CONTENT_TYPE
from daemon.operator import StatusReport


def add(api: Api, guards: Guards, services: Services) -> None:
    """Add these operations to `api`."""
    browser = services.browser

    @api.operation("GET", "/api/health", access=guards.anyone, ok=HealthResponse)
    async def health(_: Caller) -> HealthResponse:
        """Whether it is up, and whether a page can run script in its browser right now."""
        return HealthResponse(
            browser_ready=browser is not None and browser.ready, timestamp=datetime.now(UTC)
        )

    @api.operation("GET", "/livez", access=guards.anyone, ok=AliveResponse)
    async def livez(_: Caller) -> AliveResponse:
        """Whether the process serves."""
        return AliveResponse()

    @api.operation("GET", "/readyz", access=guards.anyone, ok=ReadyResponse, errors=(503,))
    async def readyz(_: Caller) -> ReadyResponse:
        """Whether every part runs and the browser works; if not, `error` is one word for why."""
        reason = services.operator.not_ready()
        if reason is not None:
            raise Unavailable(reason, retry_after=2)
        return ReadyResponse()

    @api.operation("GET", "/api/status", access=guards.session, ok=StatusReport)
    async def status(_: Session) -> StatusReport:
        """Every part with its state, the queues, the browser, and how the account stands."""
        return await services.operator.status()

    @api.operation(
        "GET", "/metrics", access=guards.local_or_session, ok=Response, media="text/plain"
    )
    async def metrics(_: None) -> Response:
        """What was counted and timed since its start, as Prometheus reads it."""
        return Response(services.metrics.text(), content_type=CONTENT_TYPE)
