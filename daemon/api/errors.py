"""Every failure as `{"ok": false, "error": "…"}` with its status (seed, section 7).

Whatever goes wrong on a path of the affiliate service ends here: what a part of the daemon refused,
what the framework refused (an unknown path, a wrong method, a body too large), and bugs.
"""

from __future__ import annotations

import logging
from http import HTTPStatus

from quart import Response, request
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from daemon.api.schemas import Failure
from daemon.errors import (
    Invalid,
    NotAllowed,
    NotFound,
    NotNow,
    Refused,
    TooManyTries,
    Unavailable,
    Unprocessable,
    UpstreamFailed,
    WrongCredential,
)
from daemon.serving import GuardedQuart

logger = logging.getLogger(__name__)

STATUSES: dict[type[Refused], HTTPStatus] = {
    Invalid: HTTPStatus.BAD_REQUEST,
    WrongCredential: HTTPStatus.UNAUTHORIZED,
    NotAllowed: HTTPStatus.FORBIDDEN,
    NotFound: HTTPStatus.NOT_FOUND,
    Unprocessable: HTTPStatus.UNPROCESSABLE_ENTITY,
    TooManyTries: HTTPStatus.TOO_MANY_REQUESTS,
    Unavailable: HTTPStatus.SERVICE_UNAVAILABLE,
    UpstreamFailed: HTTPStatus.BAD_GATEWAY,
}

_TEXTS = {
    404: "there is nothing at this path; /docs lists what there is",
    405: "this path does not take this method; the Allow header names those it takes",
    408: "the body did not arrive in time; send it faster",
    413: "the body is larger than server.max_body allows; send less",
}
_BUG = "internal error; the daemon's log has it"


def handle_errors(app: GuardedQuart) -> None:
    """Give `app` its error handlers."""

    @app.errorhandler(Refused)
    async def refused(refusal: Refused) -> Response:
        kind = next(kind for kind in STATUSES if isinstance(refusal, kind))
        headers = {"Retry-After": str(refusal.retry_after)} if isinstance(refusal, NotNow) else {}
        return failure(STATUSES[kind], str(refusal), headers)

    @app.errorhandler(HTTPException)
    async def http(error: HTTPException) -> Response:
        status = error.code or 500
        text = _TEXTS.get(status, error.description or HTTPStatus(status).phrase)
        allowed = error.valid_methods if isinstance(error, MethodNotAllowed) else None
        return failure(status, text, {"Allow": ", ".join(sorted(allowed))} if allowed else {})

    @app.errorhandler(Exception)
    async def bug(error: Exception) -> Response:
        logger.error("%s %s failed", request.method, request.path, exc_info=error)
        return failure(HTTPStatus.INTERNAL_SERVER_ERROR, _BUG)


def failure(status: int, text: str, headers: dict[str, str] | None = None) -> Response:
    """The failure body as a response."""
    return Response(
        Failure(error=text).model_dump_json(),
        status,
        {"Cache-Control": "no-store", **(headers or {})},
        content_type="application/json",
    )
