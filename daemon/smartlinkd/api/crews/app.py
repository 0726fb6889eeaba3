"""The apps of crews: under `/crews/<name>`, at `/` for one, and at addresses of their own.

All three serve the same operations, and the first documents them. A body is JSON whatever its
`Content-Type` says, because not every client sets it. Other people's web pages gain nothing by
that: an operation needs a token, or the session cookie in a request that the browser says is the
page's own (`is_own_page`).
"""

from __future__ import annotations

from typing import Final

from smartlinkd.api.auth_guards import Guards
from smartlinkd.api.crews import routes
from smartlinkd.api.crews.errors import crew_failure_body
from smartlinkd.api.crews.schemas import CrewFailure, InCrew
from smartlinkd.api.errors import handle_errors
from smartlinkd.api.operations import Api
from smartlinkd.api.services import CrewServices, Services
from smartlinkd.api.timings import measure
from smartlinkd.crews.catalog.catalog import UNDER
from smartlinkd.http_server import GuardedQuart

_MEANINGS: Final = {
    401: "The bearer token is missing or wrong, or there is no such crew",
    403: "The API key does not have the scope `crews`",
    404: "There is no such execution, or not for this token",
    422: "Required inputs are missing, or the Idempotency-Key was used for another body",
    503: "The crew cannot run, its queue is full, or a part of the daemon is restarting",
}


def add_crews(app: GuardedQuart, guards: Guards, crews: CrewServices) -> Api:
    """Serve every crew at its address on the main one; returns the table, for the document."""
    api = Api(
        app,
        failure=CrewFailure,
        meanings=_MEANINGS,
        under=f"{UNDER}{{crew}}",
        shared=InCrew,
        any_type=True,
    )
    routes.add(api, guards, crews)
    return api


def add_one_crew(app: GuardedQuart, guards: Guards, name: str, crews: CrewServices) -> Api:
    """Serve one crew at `/`; returns the table, for its paths."""
    api = Api(app, failure=CrewFailure, given={"crew": name}, any_type=True)
    routes.add(api, guards, crews)
    return api


def build_crew_app(name: str, services: Services) -> GuardedQuart:
    """Return the app of one crew for its own address. All its failures have the crews' shape."""
    app = GuardedQuart(max_body=services.rules.max_body, failure_body=crew_failure_body)
    add_one_crew(app, Guards(services), name, services.crews)
    handle_errors(app)
    measure(app, services.metrics)
    return app
