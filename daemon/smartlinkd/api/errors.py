"""The status and the text of every failure: refusals, the framework's errors, and bugs."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus

from pydantic import JsonValue
from pydantic_core import to_json
from quart import Response, request
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from smartlinkd.errors import (
    BUG,
    Conflict,
    Invalid,
    NotAllowed,
    NotFound,
    NotNow,
    Refused,
    TooManyAtOnce,
    TooManyTries,
    Unavailable,
    Unprocessable,
    UpstreamFailed,
    WrongCredential,
    WrongToken,
)
from smartlinkd.http_server import GuardedQuart

logger = logging.getLogger(__name__)

STATUSES: dict[type[Refused], HTTPStatus] = {
    Invalid: HTTPStatus.BAD_REQUEST,
    WrongCredential: HTTPStatus.UNAUTHORIZED,
    NotAllowed: HTTPStatus.FORBIDDEN,
    NotFound: HTTPStatus.NOT_FOUND,
    Conflict: HTTPStatus.CONFLICT,
    Unprocessable: HTTPStatus.UNPROCESSABLE_ENTITY,
    TooManyTries: HTTPStatus.TOO_MANY_REQUESTS,
    TooManyAtOnce: HTTPStatus.TOO_MANY_REQUESTS,
    Unavailable: HTTPStatus.SERVICE_UNAVAILABLE,
    UpstreamFailed: HTTPStatus.BAD_GATEWAY,
}

_TEXTS = {
    404: "there is nothing at this path; /docs of the daemon's main address lists what there is",
    405: "this path does not take this method; the Allow header names those it takes",
    408: "the body did not arrive in time; send it faster",
    413: "the body is larger than the {max_body} bytes that server.max_body allows; send less",
}


def handle_errors(app: GuardedQuart) -> None:
    """Give `app` its error handlers. The bodies are those of `app.failure_body`."""

    def answer(
        status: int,
        text: str,
        headers: Mapping[str, str] | None = None,
        details: Mapping[str, JsonValue] | None = None,
    ) -> Response:
        body = app.failure_body(status, text, request.path)
        return Response(
            to_json({**body, "details": details} if details else body),
            status,
            {"Cache-Control": "no-store", **(headers or {})},
            content_type="application/json",
        )

    @app.errorhandler(Refused)
    async def refused(refusal: Refused) -> Response:
        kind = next(kind for kind in STATUSES if isinstance(refusal, kind))
        headers = {}
        if isinstance(refusal, NotNow):
            headers["Retry-After"] = str(refusal.retry_after)
        if isinstance(refusal, WrongToken):
            headers["WWW-Authenticate"] = "Bearer"  # RFC 6750, section 3
        details = refusal.details if isinstance(refusal, Unprocessable) else None
        return answer(STATUSES[kind], str(refusal), headers, details)

    @app.errorhandler(HTTPException)
    async def http(error: HTTPException) -> Response:
        status = error.code or 500
        text = _TEXTS.get(status, error.description or HTTPStatus(status).phrase)
        if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            text = text.format(max_body=app.config["MAX_CONTENT_LENGTH"])
        allowed = error.valid_methods if isinstance(error, MethodNotAllowed) else None
        return answer(status, text, {"Allow": ", ".join(sorted(allowed))} if allowed else None)

    @app.errorhandler(Exception)
    async def bug(error: Exception) -> Response:
        logger.error("%s %s failed", request.method, request.path, exc_info=error)
        return answer(HTTPStatus.INTERNAL_SERVER_ERROR, BUG)
