"""The app: the operations behind their guards, the error handlers, the extension's preflight."""

from __future__ import annotations

from functools import partial

import trio
from quart import Response, g, request
from werkzeug.exceptions import MethodNotAllowed

from daemon import __version__
from daemon.api import docs
from daemon.api.errors import handle_errors
from daemon.api.guards import Guards
from daemon.api.openapi import Api
from daemon.api.routes import auth, convert, cookies, operator
from daemon.api.schemas import Failure
from daemon.api.services import Services
from daemon.serving import GuardedQuart

PREFLIGHT_AGE = 600
"""Seconds for which a browser may remember what an extension is allowed."""

_FOR_EXTENSIONS = ("/api/sync-cookie", "/api/sync-cookie-local")


def build_app(services: Services) -> GuardedQuart:
    """The facade of the affiliate service over these parts."""
    app = GuardedQuart(max_body=services.max_body)
    api = Api(app, "smartlinkd: affiliate smart links", __version__, failure=Failure)
    guards = Guards(services)
    auth.add(api, guards, services.auth)
    cookies.add(api, guards, services.vault, services.desk)
    convert.add(api, guards, services.desk, services.vault, services.metrics)
    operator.add(app, api, guards, services)
    docs.register(app, api)
    handle_errors(app)
    _allow_extension(app, api, services.extension_origins)
    _measure(app, services)
    return app


def _allow_extension(app: GuardedQuart, api: Api, origins: frozenset[str]) -> None:
    """CORS (Fetch standard, "HTTP extensions") for the configured extension, and for nobody else.

    Only for the cookie's endpoints: they are all that an extension is for.
    """
    if not origins:
        return
    for path in _FOR_EXTENSIONS:
        app.add_url_rule(
            path,
            f"preflight {path}",
            partial(_preflight, origins, api.methods(path)),
            methods=["OPTIONS"],
            provide_automatic_options=False,
        )

    @app.after_request
    async def name_origin(response: Response) -> Response:
        origin = request.headers.get("Origin")
        if request.path in _FOR_EXTENSIONS and origin in origins:
            response.headers["Access-Control-Allow-Origin"] = origin
            response.headers.add("Vary", "Origin")
        return response


async def _preflight(origins: frozenset[str], methods: list[str]) -> Response:
    """What a browser asks for the extension; any other OPTIONS is a wrong method."""
    asks = "Access-Control-Request-Method" in request.headers
    if not asks or request.headers.get("Origin") not in origins:
        raise MethodNotAllowed(valid_methods=methods)
    return Response(
        status=204,
        headers={
            "Access-Control-Allow-Methods": ", ".join(methods),
            "Access-Control-Allow-Headers": "Authorization, Content-Type",
            "Access-Control-Max-Age": str(PREFLIGHT_AGE),
        },
    )


def _measure(app: GuardedQuart, services: Services) -> None:
    """Count and time requests by route, so that unknown paths are one line and not thousands."""

    @app.before_request
    async def start() -> None:
        g.started = trio.current_time()

    @app.after_request
    async def stop(response: Response) -> Response:
        route = request.url_rule.rule if request.url_rule is not None else "unknown"
        services.metrics.requests.labels(route, response.status_code).inc()
        services.metrics.request_seconds.labels(route).observe(trio.current_time() - g.started)
        return response
