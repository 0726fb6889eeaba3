"""Requests counted and timed by route, so that unknown paths are one line and not thousands."""

from __future__ import annotations

from functools import cache

import trio
from quart import Response, g, request

from daemon.metrics import Metrics
from daemon.serving import GuardedQuart


def measure(app: GuardedQuart, metrics: Metrics) -> None:
    """Have `metrics` know of every request to `app`."""

    counter_of = cache(metrics.requests.labels)
    histogram_of = cache(metrics.request_seconds.labels)

    @app.before_request
    async def start() -> None:
        g.started = trio.current_time()

    @app.after_request
    async def stop(response: Response) -> Response:
        route = request.url_rule.rule if request.url_rule is not None else "unknown"
        counter_of(route, response.status_code).inc()
        histogram_of(route).observe(trio.current_time() - g.started)
        return response
