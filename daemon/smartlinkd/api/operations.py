"""One table of operations, from which both the routes and the OpenAPI document are made.

    api = Api(app, failure=Failure)

    @api.operation("POST", "/api/convert", access=session, body=ConvertRequest, ok=ConvertResponse)
    async def convert(session: Session, body: ConvertRequest) -> ConvertResponse: ...

Errors are raised; the app's error handlers answer them. Why: docs/decisions/077-operations.md.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, TypeVar

from pydantic import BaseModel
from quart import Response, request
from quart.typing import ResponseReturnValue
from quart.wrappers.response import DataBody

from smartlinkd.api.requests import read_body, read_parameters
from smartlinkd.http_server import GuardedQuart, has_whole_body
from smartlinkd.supervision.calls import ACTOR_TIMEOUT_S, actor_deadline
from smartlinkd.wire import Parameters

H = TypeVar("H", bound=Callable[..., Awaitable[BaseModel | Response]])

_IN_BRACES = re.compile(r"\{(\w+)\}")
_SCHEME: Final = "bearer"


def bearer() -> str | None:
    """Return the token of the request's `Authorization` header (RFC 6750, section 2.1), or None."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == _SCHEME and token.strip() else None


@dataclass(frozen=True)
class Access:
    """The right to call an operation."""

    admit: Callable[[], Awaitable[object]]
    """Returns the caller, which the handler gets as its first argument, or raises. It runs inside
    the request, before the body is read and again when it is there."""
    bearer_use: Literal["none", "optional", "required"]
    """If a client has to send a token, for the document. With "none" an unfinished body counts for
    the client's address, whatever token is sent."""
    refusals: tuple[int, ...] = (403, 503)
    """Statuses that `admit` can lead to."""
    scope: str | None = None
    """The scope that an API key needs, for the document: `admit` checks it."""


@dataclass(frozen=True)
class Operation:
    """One row of the table. `media` is the answer's media type."""

    method: str
    path: str
    name: str
    text: str
    access: Access
    asks: type[Parameters] | None
    body: type[BaseModel] | None
    ok: tuple[type[BaseModel], ...]
    media: str
    errors: tuple[int, ...]
    needs_body: bool


class Api:
    """The operations of one API."""

    def __init__(
        self,
        target: GuardedQuart,
        *,
        failure: type[BaseModel],
        meanings: Mapping[int, str] | None = None,
        under: str = "",
        shared: type[Parameters] | None = None,
        given: Mapping[str, str] | None = None,
        any_type: bool = False,
    ) -> None:
        """Begin an empty table.

        Args:
            target: The app that serves the operations.
            failure: The body of all errors.
            meanings: The document's words for statuses that mean something special here.
            under: Put before every path.
            shared: The parameters in `under`.
            given: Their values, if the path has none of them.
            any_type: Take a body for JSON whatever its `Content-Type` says.
        """
        self.target = target
        self.failure = failure
        self.meanings = meanings or {}
        self.shared = shared
        self.operations: list[Operation] = []
        self.paths: set[str] = set()  # all that are served, with parameters in braces
        self._under = under
        self._given = given
        self._any_type = any_type

    def operation(
        self,
        method: str,
        path: str,
        *,
        access: Access,
        asks: type[Parameters] | None = None,
        body: type[BaseModel] | None = None,
        needs_body: bool = True,
        ok: type[BaseModel | Response] | tuple[type[BaseModel], ...],
        media: str = "application/json",
        errors: Iterable[int] = (),
        seconds: float = ACTOR_TIMEOUT_S,
        also: str = "",
    ) -> Callable[[H], H]:
        """Serve the decorated handler at `path`, and document it.

        The handler is called with the caller, then with the validated parameters and body, if it
        has any. The first line of its docstring is the summary, the rest the description.

        Args:
            access: Its `admit` gives the caller.
            asks: The model of the parameters.
            body: The model of the body.
            needs_body: False to take no body for an empty object.
            ok: The models of an answer with 200; or `Response`, if the handler makes the answer.
            media: The answer's media type, if `ok` is `Response`.
            errors: The handler's own statuses. Those of its access and its body are added.
            seconds: To answer, after the body has arrived; then it is a 503.
            also: A second path, which is served and not documented.
        """

        def declare(handler: H) -> H:
            async def view(**_: str) -> ResponseReturnValue:
                with actor_deadline():
                    arguments: list[object] = [await access.admit()]
                if asks is not None:
                    arguments.append(read_parameters(asks))
                if body is not None:
                    arguments.append(
                        await self._read_body(body, access, is_optional=not needs_body)
                    )
                    with actor_deadline():  # the token may have been ended while the body came
                        arguments[0] = await access.admit()
                with actor_deadline(seconds):
                    answer = await handler(*arguments)
                # Tokens and cookies are among the answers: nobody is to keep one.
                if isinstance(answer, Response):
                    answer.headers["Cache-Control"] = "no-store"
                    if request.method == "HEAD":  # its body may be a stream that nobody would read
                        answer.response = DataBody(b"")
                    return answer
                headers = {"Content-Type": "application/json", "Cache-Control": "no-store"}
                return answer.model_dump_json(by_alias=True), 200, headers

            models = ok if isinstance(ok, tuple) else (ok,)
            self.operations.append(
                Operation(
                    method,
                    self._under + path,
                    handler.__name__,
                    inspect.getdoc(handler) or "",
                    access,
                    asks,
                    body,
                    tuple(model for model in models if issubclass(model, BaseModel)),
                    media,
                    tuple(errors),
                    needs_body,
                )
            )
            for each in filter(None, (path, also)):
                self.paths.add(self._under + each)
                rule = _IN_BRACES.sub(r"<\1>", self._under + each)
                self.target.add_url_rule(
                    # The address that others are under is good with a slash at its end and without,
                    # for every method; a redirect from one to the other would be no JSON.
                    rule.removesuffix("/") or "/",
                    f"{rule} {handler.__name__}",
                    view,
                    methods=[method],
                    defaults=self._given,
                    strict_slashes=each != "/",
                    provide_automatic_options=False,
                )
            return handler

        return declare

    async def _read_body(
        self, model: type[BaseModel], access: Access, *, is_optional: bool
    ) -> BaseModel:
        """Read the current request's body. It takes a place while it is incomplete."""
        read = partial(read_body, model, any_type=self._any_type, is_optional=is_optional)
        if has_whole_body():
            return await read()
        token = bearer() if access.bearer_use != "none" else None
        sender = token or request.remote_addr or ""
        with self.target.places.receive(sender, is_token=token is not None):
            return await read()
