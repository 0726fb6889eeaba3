"""The main app: its operations, error handlers, and the extension's preflight."""

from __future__ import annotations

from quart import Response, request
from quart.wrappers.response import DataBody

from smartlinkd.api import static
from smartlinkd.api.auth_guards import Guards
from smartlinkd.api.crews.app import add_crews, add_one_crew
from smartlinkd.api.crews.errors import main_failure_body
from smartlinkd.api.document import document
from smartlinkd.api.errors import handle_errors
from smartlinkd.api.operations import Api
from smartlinkd.api.routes import auth, convert, cookies, crews, history, keys, operator
from smartlinkd.api.schemas import Failure
from smartlinkd.api.services import Services
from smartlinkd.api.timings import measure
from smartlinkd.http_server import GuardedQuart
from smartlinkd.http_server.http1 import REQUEST_ID_HEADER
from smartlinkd.web import extension
from smartlinkd.web import routes as web

_FOR_EXTENSIONS = ("/api/sync-cookie", "/api/sync-cookie-local")
"""The cookie's endpoints. They are all that an extension is for."""
_EXPOSED = f"Retry-After, {REQUEST_ID_HEADER}"
"""Headers that a browser keeps from an extension unless they are named to it."""


def build_app(services: Services) -> GuardedQuart:
    """Return the main app: the affiliate service, the owner's endpoints, and the crews."""
    app = GuardedQuart(max_body=services.rules.max_body)
    api = Api(app, failure=Failure)
    guards = Guards(services)
    auth.add(api, guards, services.auth)
    keys.add(api, guards, services.auth, services.operator)
    cookies.add(api, guards, services.vault, services.conversion)
    convert.add(api, guards, services.conversion, services.vault)
    history.add(api, guards, services.history)
    operator.add(api, guards, services)
    crews.add(api, guards, services.crews)
    of_crews = add_crews(app, guards, services.crews)
    static.register(app, lambda: document([api, of_crews]))
    default = services.crews.executor.catalog.default
    of_default = add_one_crew(app, guards, default, services.crews) if default is not None else None
    app.failure_body = main_failure_body(of_default.paths if of_default is not None else ())
    handle_errors(app)
    measure(app, services.metrics)
    # Behind the measuring: these may answer before any view is called.
    _allow_extension(app, services.rules.extension_origins)
    web.register(app, services.site)
    extension.register(app)
    return app


def _allow_extension(app: GuardedQuart, origins: frozenset[str]) -> None:
    """Add CORS (Fetch standard, "HTTP extensions") for the configured extension alone."""
    if not origins:
        return
    # A browser may write its extension's id in other letters (capitals) than its owner did.
    named = frozenset(origin.lower() for origin in origins)

    def is_for_extension() -> bool:
        return (
            request.path in _FOR_EXTENSIONS and request.headers.get("Origin", "").lower() in named
        )

    @app.before_request
    async def preflight() -> Response | None:
        """Answer a browser's preflight; any other OPTIONS is a wrong method."""
        asks = request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers
        if not asks or not is_for_extension():
            return None
        # GET, HEAD and POST need no leave (Fetch standard, "CORS-safelisted method").
        allowed = {"Access-Control-Allow-Headers": "Authorization, Content-Type"}
        return Response(DataBody(b""), 204, allowed)  # without a body Quart reaches for asyncio

    @app.after_request
    async def name_origin(response: Response) -> Response:
        if is_for_extension():
            response.headers["Access-Control-Allow-Origin"] = request.headers["Origin"]
            response.headers["Access-Control-Expose-Headers"] = _EXPOSED
            response.headers.add("Vary", "Origin")
        return response
