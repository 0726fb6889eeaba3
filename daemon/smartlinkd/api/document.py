"""The OpenAPI document of the operations that tables declare (see `operations.py`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, models_json_schema
from pydantic_core.core_schema import DataclassField, ModelField, TypedDictField

from smartlinkd import __version__
from smartlinkd.api.operations import Api, Operation
from smartlinkd.api.requests import describe_parameters
from smartlinkd.http_server.http1 import LONGEST_REQUEST_ID, REQUEST_ID_HEADER

Json = dict[str, Any]
_References = Mapping[tuple[Any, JsonSchemaMode], Json]  # from a model and its side to its $ref

BODY_ERRORS = (400, 408, 413, 429, 503)  # what any operation with a body may answer
RETRY_LATER = (429, 503)  # answered with `Retry-After`

_MEANINGS = {
    400: "The request is wrong: the text names the field and the rule",
    401: "Wrong password or wrong code",
    403: "No access: the token or key is missing, invalid or expired, or the key lacks the scope",
    409: "The cookie is another account's",
    408: "The body did not arrive in time",
    413: "The body is too large",
    429: "Too many tries from there, or too much open at once with this token",
    500: "Internal error",
    502: "The browser or the marketplace failed; often the cookie has expired",
    503: "Not ready or overloaded",
}
_REQUEST_ID: Json = {
    "description": "The request's own X-Request-Id, or one that the daemon gave it; the daemon's "
    "log lines about this request have it",
    "required": True,
    "schema": {"type": "string", "minLength": 1, "maxLength": LONGEST_REQUEST_ID},
}
_SECURITY: dict[str, list[Json]] = {
    "none": [],
    "optional": [{}, {"bearer": []}],
    "required": [{"bearer": []}],
}


_TAGS: Final = {
    "links": ("Convert links, and find them in texts", ("/api/convert", "/api/extract")),
    "cookie": (
        "The affiliate account's cookie, and how the account stands",
        ("/api/sync-cookie", "/api/account"),
    ),
    "login": ("Password, second factor, sessions and keys", ("/api/auth", "/api/keys")),
    "history": ("What was converted", ("/api/history",)),
    "crews": ("The crews, their tokens and their executions", ("/api/crews", "/crews")),
    "operation": ("For monitors and the owner", ("/",)),
}
"""The description of each tag, and how the paths of its operations begin. The first one counts."""


def document(apis: Sequence[Api]) -> Json:
    """Return the OpenAPI 3.1 document of the operations that are declared so far."""
    references, schemas = _schemas(apis)
    paths: dict[str, Json] = {}
    for api in apis:
        for operation in api.operations:
            entry = _describe(operation, api, references)
            # A crew's own address is served with a slash at its end and without.
            path = operation.path.removesuffix("/") or "/"
            paths.setdefault(path, {})[operation.method.lower()] = entry
    return {
        "openapi": "3.1.0",
        "info": {"title": "smartlinkd", "version": __version__},
        "servers": [{"url": "/", "description": "this daemon"}],
        "tags": [{"name": name, "description": text} for name, (text, _) in _TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "headers": {REQUEST_ID_HEADER: _REQUEST_ID},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _schemas(apis: Sequence[Api]) -> tuple[_References, Json]:
    models: dict[tuple[type[BaseModel], JsonSchemaMode], None] = {}
    for api in apis:
        models[api.failure, "serialization"] = None
        for operation in api.operations:
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
    """Marks each field of an answer as required, unless the field says when it is left out."""

    def field_is_required(
        self, field: ModelField | DataclassField | TypedDictField, total: bool
    ) -> bool:
        written = self.mode == "serialization" and "serialization_exclude_if" not in field
        return written or super().field_is_required(field, total)


def _describe(operation: Operation, api: Api, references: _References) -> Json:
    summary, _, description = operation.text.partition("\n")
    asked = [
        parameter
        for model in (api.shared, operation.asks)
        if model is not None
        for parameter in describe_parameters(model)
    ]
    tags = (name for name, (_, paths) in _TAGS.items() if operation.path.startswith(paths))
    entry: Json = {
        "operationId": operation.name,
        "tags": [next(tags)],
        "summary": summary,
        "description": _with_scope(description.strip(), operation),
        "security": _SECURITY[operation.access.bearer_use],
        "responses": {
            "200": _success(operation, references),
            **{
                str(status): _failure(status, api, references)
                for status in sorted(_statuses(operation, asked))
            },
        },
    }
    if asked:
        entry["parameters"] = asked
    if operation.body is not None:
        schema = references[operation.body, "validation"]
        entry["requestBody"] = {
            "required": operation.needs_body,
            "content": {"application/json": {"schema": schema}},
        }
    return entry


def _with_scope(description: str, operation: Operation) -> str:
    """Return the description with the scope that an API key needs."""
    scope = operation.access.scope
    needs = f"An API key needs the scope `{scope}`." if scope is not None else ""
    return "\n\n".join(filter(None, (description, needs)))


def _statuses(operation: Operation, asked: Sequence[Json]) -> set[int]:
    statuses = {*operation.errors, *operation.access.refusals, 500}
    if any(parameter["in"] != "path" for parameter in asked):
        statuses.add(400)
    if operation.body is not None:
        statuses.update(BODY_ERRORS)
    return statuses


def _success(operation: Operation, references: _References) -> Json:
    schemas = [references[model, "serialization"] for model in operation.ok]
    return _answer("Success", schemas or [{"type": "string"}], operation.media)


def _answer(description: str, schemas: Sequence[Json], media: str = "application/json") -> Json:
    schema = schemas[0] if len(schemas) == 1 else {"anyOf": list(schemas)}
    return {
        "description": description,
        "headers": {REQUEST_ID_HEADER: {"$ref": f"#/components/headers/{REQUEST_ID_HEADER}"}},
        "content": {media: {"schema": schema}},
    }


def _failure(status: int, api: Api, references: _References) -> Json:
    meaning = api.meanings.get(status) or _MEANINGS.get(status) or HTTPStatus(status).phrase
    answer = _answer(meaning, [references[api.failure, "serialization"]])
    if status in RETRY_LATER:
        answer["headers"]["Retry-After"] = {
            "description": "Seconds to wait",
            "required": True,
            "schema": {"type": "integer", "minimum": 1},
        }
    return answer
