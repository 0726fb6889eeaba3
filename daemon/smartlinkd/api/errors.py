"""The status and the text of every failure: refusals, the framework's errors, and bugs.

Here are the failure bodies of the owner's API (docs/api.md). Those of crews are in
api/crews/errors.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

from pydantic import JsonValue
from quart import Response, request
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from smartlinkd.api.schemas import Failure
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


@dataclass(frozen=True)
class Refusal:
    """A failure, before it has the shape of one of the two APIs."""

    status: int
    text: str
    headers: Mapping[str, str] = field(default_factory=dict)
    details: Mapping[str, JsonValue] = field(default_factory=dict)


def handle_errors(app: GuardedQuart, answer: Callable[[Refusal], Response]) -> None:
    """Give `app` its error handlers; `answer` makes the response to the current request."""

    @app.errorhandler(Refused)
    async def refused(refusal: Refused) -> Response:
        kind = next(kind for kind in STATUSES if isinstance(refusal, kind))
        headers = {"Retry-After": str(refusal.retry_after)} if isinstance(refusal, NotNow) else {}
        details = refusal.details if isinstance(refusal, Unprocessable) else {}
        return answer(Refusal(STATUSES[kind], str(refusal), headers, details))

    @app.errorhandler(HTTPException)
    async def http(error: HTTPException) -> Response:
        status = error.code or 500
        text = _TEXTS.get(status, error.description or HTTPStatus(status).phrase)
        if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            text = text.format(max_body=app.config["MAX_CONTENT_LENGTH"])
        allowed = set(error.valid_methods or ()) if isinstance(error, MethodNotAllowed) else set()
        allowed.discard("OPTIONS")  # an extension's preflight: any other is refused as well
        headers = {"Allow": ", ".join(sorted(allowed))} if allowed else {}
        return answer(Refusal(status, text, headers))

    @app.errorhandler(Exception)
    async def bug(error: Exception) -> Response:
        logger.error("%s %s failed", request.method, request.path, exc_info=error)
        return answer(Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, BUG))


def failure(refusal: Refusal) -> Response:
    """Return the failure body of the affiliate service as a response."""
    return Response(
        Failure(error=refusal.text).model_dump_json(),
        refusal.status,
        {"Cache-Control": "no-store", **refusal.headers},
        content_type="application/json",
    )
