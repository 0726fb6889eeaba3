"""Requests counted and timed by route, so that unknown paths are one line and not thousands."""

from __future__ import annotations

import trio
from quart import Response, g, request

from daemon.metrics import Metrics
from daemon.serving import GuardedQuart


def measure(app: GuardedQuart, metrics: Metrics) -> None:
    """Have `metrics` know of every request to `app`."""

    @app.before_request
    async def start() -> None:
        g.started = trio.current_time()

    @app.after_request
    async def stop(response: Response) -> Response:
        route = request.url_rule.rule if request.url_rule is not None else "unknown"
        metrics.requests.labels(route, response.status_code).inc()
        metrics.request_seconds.labels(route).observe(trio.current_time() - g.started)
        return response
