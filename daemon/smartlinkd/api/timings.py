"""Count and time requests by route, so that unknown paths are one line and not thousands."""

from __future__ import annotations

import trio
from quart import Response, g, request

from smartlinkd.admin.prometheus import Metrics
from smartlinkd.http_server import GuardedQuart
from smartlinkd.metrics import LEFT


def measure(app: GuardedQuart, metrics: Metrics) -> None:
    """Have `metrics` count every request to `app`."""

    def count(status: int | str) -> None:
        route = request.url_rule.rule if request.url_rule is not None else "unknown"
        metrics.requests.labels(route, status).inc()
        if not g.is_waiting:
            metrics.request_seconds.labels(route).observe(trio.current_time() - g.started)

    @app.before_request
    async def start() -> None:
        g.started = trio.current_time()
        g.is_waiting = False

    @app.after_request
    async def stop(response: Response) -> Response:
        count(response.status_code)
        return response

    @app.teardown_request
    async def leave(error: BaseException | None) -> None:
        # Other errors are answered, and counted above; this one is the cancellation of a request
        # whose client has left, maybe before it was begun.
        if error is not None and "started" in g:
            count(LEFT)


def count_only() -> None:
    """Count the current request and do not time it: its client chooses how long it takes."""
    g.is_waiting = True
