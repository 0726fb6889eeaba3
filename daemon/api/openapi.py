"""One table of operations, from which both the routes and the OpenAPI document are made.

The problem: a document written beside the code is soon wrong, and one that a library derives from
the framework leaves out what clients stumble over (that a body is required, the errors, their
headers). The choice: an operation is declared once, and the declaration is all there is: the view
validates with the models that the document shows.

    api = Api(app, "Affiliate smart links", "1.0", failure=Failure)

    @api.operation("POST", "/api/convert", access=session, body=ConvertRequest, ok=ConvertResponse,
                   errors=(502, 503))
    async def convert(session: Session, body: ConvertRequest) -> ConvertResponse:
        \"\"\"Turn product links into affiliate links.\"\"\"

Errors are raised: `daemon.errors` and werkzeug's `HTTPException`s. The app's error handlers turn
them into the failure body that the document shows.

Rejected: quart-schema (no `required` on bodies, `get_json`, models inlined, pages from CDNs).
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Generic, Literal, TypeVar, overload

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, models_json_schema
from pydantic_core.core_schema import DataclassField, ModelField, TypedDictField
from quart import Blueprint, Quart
from quart.typing import ResponseReturnValue

from daemon.api import bodies
from daemon.patience import PATIENCE, patience

C = TypeVar("C")
B = TypeVar("B", bound=BaseModel)
R = TypeVar("R", bound=BaseModel)
Json = dict[str, Any]
_Handler = Callable[..., Awaitable[Any]]
_References = Mapping[tuple[Any, JsonSchemaMode], Json]  # from a model and its side to its $ref

BODY_ERRORS = (400, 408, 413)  # what any operation with a body may answer
RETRY_LATER = (429, 503)  # answered with `Retry-After`

_MEANINGS = {
    400: "The request is wrong: the text names the field and the rule",
    401: "Wrong password or wrong code",
    403: "No access: the token is missing, invalid or expired",
    404: "Not found",
    408: "The body did not arrive in time",
    413: "The body is too large",
    429: "Too many tries from there",
    500: "Internal error",
    502: "The browser or the marketplace failed; often the cookie has expired",
    503: "Not ready or overloaded",
}
_SECURITY: dict[str, list[Json]] = {
    "none": [],
    "optional": [{}, {"bearer": []}],
    "required": [{"bearer": []}],
}


@dataclass(frozen=True)
class Access(Generic[C]):
    """Who may call an operation.

    `admit` runs inside the request, before its body is read. It returns the caller, whom the
    handler gets as its first argument, or raises. `bearer` says whether the document asks a client
    for a token, `refusals` the statuses that `admit` can lead to.
    """

    admit: Callable[[], Awaitable[C]]
    bearer: Literal["none", "optional", "required"]
    refusals: tuple[int, ...] = ()


@dataclass(frozen=True)
class Operation:
    """One row of the table."""

    method: str
    path: str
    name: str
    text: str
    access: Access[Any]
    body: type[BaseModel] | None
    ok: tuple[type[BaseModel], ...]
    errors: tuple[int, ...]


class Api:
    """The operations of one API. `failure` is the body of all its errors."""

    def __init__(
        self, target: Quart | Blueprint, title: str, version: str, *, failure: type[BaseModel]
    ) -> None:
        self._target = target
        self._title = title
        self._version = version
        self._failure = failure
        self._operations: list[Operation] = []

    @overload
    def operation(
        self,
        method: str,
        path: str,
        *,
        access: Access[C],
        body: type[B],
        ok: type[R] | tuple[type[R], ...],
        errors: Iterable[int] = (),
        seconds: float = PATIENCE,
    ) -> Callable[[Callable[[C, B], Awaitable[R]]], Callable[[C, B], Awaitable[R]]]: ...

    @overload
    def operation(
        self,
        method: str,
        path: str,
        *,
        access: Access[C],
        ok: type[R] | tuple[type[R], ...],
        errors: Iterable[int] = (),
        seconds: float = PATIENCE,
    ) -> Callable[[Callable[[C], Awaitable[R]]], Callable[[C], Awaitable[R]]]: ...

    def operation(
        self,
        method: str,
        path: str,
        *,
        access: Access[Any],
        body: type[BaseModel] | None = None,
        ok: type[BaseModel] | tuple[type[BaseModel], ...],
        errors: Iterable[int] = (),
        seconds: float = PATIENCE,
    ) -> Callable[[_Handler], _Handler]:
        """Serve the decorated handler at `path`, and document it.

        It is called with what `access` says of the caller and, where the operation has a `body`,
        the validated body; it returns one of the `ok` models, answered with 200. `errors` are the
        statuses that are its own: those of its access and its body are added. It has `seconds` to
        answer, not counting those that its body takes to arrive, and is a 503 after that. The first
        line of its docstring is the summary, the rest the description.
        """

        def declare(handler: _Handler) -> _Handler:
            async def view() -> ResponseReturnValue:
                with patience():
                    caller = await access.admit()
                arguments = (caller,) if body is None else (caller, await bodies.read(body))
                with patience(seconds):
                    answer = await handler(*arguments)
                # Tokens and cookies are among the answers: nobody is to keep one.
                headers = {"Content-Type": "application/json", "Cache-Control": "no-store"}
                return answer.model_dump_json(by_alias=True), 200, headers

            self._operations.append(
                Operation(
                    method,
                    path,
                    handler.__name__,
                    inspect.getdoc(handler) or "",
                    access,
                    body,
                    ok if isinstance(ok, tuple) else (ok,),
                    tuple(errors),
                )
            )
            self._target.add_url_rule(
                path, handler.__name__, view, methods=[method], provide_automatic_options=False
            )
            return handler

        return declare

    def methods(self, path: str) -> list[str]:
        """The methods that are served at `path` so far, HEAD among them where GET is."""
        declared = {operation.method for operation in self._operations if operation.path == path}
        return sorted(declared | ({"HEAD"} if "GET" in declared else set()))

    def document(self) -> Json:
        """The OpenAPI 3.1 document of the operations declared so far."""
        references, schemas = self._schemas()
        paths: dict[str, Json] = {}
        for operation in self._operations:
            entry = _describe(operation, self._failure, references)
            paths.setdefault(operation.path, {})[operation.method.lower()] = entry
        return {
            "openapi": "3.1.0",
            "info": {"title": self._title, "version": self._version},
            "paths": paths,
            "components": {
                "schemas": schemas,
                "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            },
        }

    def _schemas(self) -> tuple[_References, Json]:
        models: dict[tuple[type[BaseModel], JsonSchemaMode], None] = {
            (self._failure, "serialization"): None
        }
        for operation in self._operations:
            if operation.body is not None:
                models[operation.body, "validation"] = None
            models.update({(model, "serialization"): None for model in operation.ok})
        references, definitions = models_json_schema(
            list(models),
            ref_template="#/components/schemas/{model}",
            schema_generator=_AnswersAreComplete,
        )
        schemas: Json = definitions["$defs"]
        return references, schemas


class _AnswersAreComplete(GenerateJsonSchema):
    """A field of an answer is always written, with a default or without."""

    def field_is_required(
        self, field: ModelField | DataclassField | TypedDictField, total: bool
    ) -> bool:
        return self.mode == "serialization" or super().field_is_required(field, total)


def _describe(operation: Operation, failure: type[BaseModel], references: _References) -> Json:
    summary, _, description = operation.text.partition("\n")
    statuses = {*operation.errors, *operation.access.refusals, 500}
    if operation.body is not None:
        statuses.update(BODY_ERRORS)
    ok = [references[model, "serialization"] for model in operation.ok]
    entry: Json = {
        "operationId": operation.name,
        "summary": summary,
        "description": description.strip(),
        "security": _SECURITY[operation.access.bearer],
        "responses": {
            "200": _answer("Success", ok),
            **{
                str(status): _failure(status, references[failure, "serialization"])
                for status in sorted(statuses)
            },
        },
    }
    if operation.body is not None:
        schema = references[operation.body, "validation"]
        entry["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schema}},
        }
    return entry


def _answer(description: str, schemas: Sequence[Json]) -> Json:
    schema = schemas[0] if len(schemas) == 1 else {"anyOf": list(schemas)}
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _failure(status: int, schema: Json) -> Json:
    answer = _answer(_MEANINGS.get(status, HTTPStatus(status).phrase), [schema])
    if status in RETRY_LATER:
        answer["headers"] = {
            "Retry-After": {
                "description": "Seconds to wait",
                "required": True,
                "schema": {"type": "integer", "minimum": 1},
            }
        }
    return answer
