"""The table of operations: what it serves, and what it says that it serves."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field, RootModel
from quart import Blueprint, request
from quart.typing import ResponseReturnValue
from werkzeug.exceptions import HTTPException

from daemon.api.openapi import Access, Api
from daemon.errors import Invalid, NotAllowed
from daemon.serving import GuardedQuart

JSON = "application/json"


class Failure(BaseModel):
    ok: Literal[False] = False
    error: str


class Greeting(BaseModel):
    first_name: str = Field(alias="firstName", description="how to call you")


class Greeted(BaseModel):
    text: str
    shared: Greeting | None = None


class Unknown(BaseModel):
    nobody: bool = True


async def owner() -> str:
    if request.headers.get("Authorization") != "Bearer token":
        raise NotAllowed("log in")
    return "owner"


async def anyone() -> None:
    return None


ANYONE = Access(anyone, bearer="none")
OWNER = Access(owner, bearer="required", refusals=(403,))


@pytest.fixture
def app() -> GuardedQuart:
    made = GuardedQuart()

    @made.errorhandler(HTTPException)
    async def http(error: HTTPException) -> ResponseReturnValue:
        return {"ok": False, "error": error.name}, error.code or 500, dict(error.get_headers())

    @made.errorhandler(Invalid)
    @made.errorhandler(NotAllowed)
    async def refused(error: Exception) -> ResponseReturnValue:
        return {"ok": False, "error": str(error)}, 400 if isinstance(error, Invalid) else 403

    return made


@pytest.fixture
def api(app: GuardedQuart) -> Api:
    made = Api(app, "Greetings", "1.2", failure=Failure)

    @made.operation(
        "POST", "/greet", access=OWNER, body=Greeting, ok=(Greeted, Unknown), errors=(429, 502)
    )
    async def greet(caller: str, body: Greeting) -> Greeted | Unknown:
        """Say hello.

        To the one who calls.
        """
        return Greeted(text=f"{caller} greets {body.first_name}", shared=body)

    @made.operation("GET", "/health", access=ANYONE, ok=Unknown)
    async def health(_: None) -> Unknown:
        return Unknown()

    return made


@pytest.fixture
def document(api: Api) -> Any:
    return api.document()


# What it serves


async def test_the_handler_gets_the_caller_and_the_checked_body(
    app: GuardedQuart, api: Api
) -> None:
    response = await app.test_client().post(
        "/greet", json={"firstName": "Ada"}, headers={"Authorization": "Bearer token"}
    )
    assert response.status_code == 200
    assert response.headers["Content-Type"] == JSON
    assert response.headers["Cache-Control"] == "no-store"
    assert await response.get_json() == {
        "text": "owner greets Ada",
        "shared": {"firstName": "Ada"},
    }


async def test_the_caller_is_checked_before_the_body(app: GuardedQuart, api: Api) -> None:
    response = await app.test_client().post("/greet", data=b"{")
    assert response.status_code == 403


async def test_a_bad_body_never_reaches_the_handler(app: GuardedQuart, api: Api) -> None:
    response = await app.test_client().post(
        "/greet", json={"firstName": 1}, headers={"Authorization": "Bearer token"}
    )
    assert await response.get_json() == {"ok": False, "error": "firstName: must be a string"}


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/greet", {"POST"}),
        ("OPTIONS", "/greet", {"POST"}),
        ("OPTIONS", "/health", {"GET", "HEAD"}),
        ("POST", "/health", {"GET", "HEAD"}),
    ],
)
async def test_another_method_is_told_which_are_allowed(
    app: GuardedQuart, api: Api, method: str, path: str, allowed: set[str]
) -> None:
    response = await getattr(app.test_client(), method.lower())(path)
    assert response.status_code == 405
    assert set(response.headers["Allow"].split(", ")) == allowed


async def test_head_is_taken_where_get_is(app: GuardedQuart, api: Api) -> None:
    assert (await app.test_client().head("/health")).status_code == 200


# What it says


def test_it_is_openapi_with_a_title(document: Any) -> None:
    assert document["openapi"] == "3.1.0"
    assert document["info"] == {"title": "Greetings", "version": "1.2"}
    assert set(document["paths"]) == {"/greet", "/health"}


def test_an_operation_is_described_by_its_docstring(document: Any) -> None:
    greet = document["paths"]["/greet"]["post"]
    assert greet["operationId"] == "greet"
    assert greet["summary"] == "Say hello."
    assert greet["description"] == "To the one who calls."


def test_a_body_is_required_and_refers_to_its_model(document: Any) -> None:
    body = document["paths"]["/greet"]["post"]["requestBody"]
    assert body["required"] is True
    assert body["content"] == {JSON: {"schema": {"$ref": "#/components/schemas/Greeting"}}}
    assert "requestBody" not in document["paths"]["/health"]["get"]


def test_models_are_defined_once_under_the_names_of_the_wire(document: Any) -> None:
    schemas = document["components"]["schemas"]
    assert set(schemas) == {"Failure", "Greeting", "Greeted", "Unknown"}
    assert schemas["Greeting"]["required"] == ["firstName"]


def test_an_answer_always_has_all_its_fields(document: Any) -> None:
    schemas = document["components"]["schemas"]
    assert schemas["Greeted"]["required"] == ["text", "shared"]
    assert schemas["Failure"]["required"] == ["ok", "error"]


def test_every_success_is_documented(document: Any) -> None:
    def schema(path: str, method: str) -> Any:
        return document["paths"][path][method]["responses"]["200"]["content"][JSON]["schema"]

    assert schema("/health", "get") == {"$ref": "#/components/schemas/Unknown"}
    assert schema("/greet", "post") == {
        "anyOf": [
            {"$ref": "#/components/schemas/Greeted"},
            {"$ref": "#/components/schemas/Unknown"},
        ]
    }


def test_errors_are_those_of_the_operation_its_access_and_its_body(document: Any) -> None:
    greet = document["paths"]["/greet"]["post"]["responses"]
    health = document["paths"]["/health"]["get"]["responses"]
    assert set(greet) == {"200", "400", "403", "408", "413", "429", "500", "502"}
    assert set(health) == {"200", "500"}
    assert {
        answer["content"][JSON]["schema"]["$ref"]
        for status, answer in greet.items()
        if status != "200"
    } == {"#/components/schemas/Failure"}


def test_errors_that_pass_say_when_to_try_again(document: Any) -> None:
    answers = document["paths"]["/greet"]["post"]["responses"]
    assert answers["429"]["headers"]["Retry-After"]["required"] is True
    assert "headers" not in answers["502"]


@pytest.mark.parametrize(
    ("bearer", "security"),
    [
        ("none", []),
        ("optional", [{}, {"bearer": []}]),
        ("required", [{"bearer": []}]),
    ],
)
def test_the_token_that_is_asked_for_is_documented(
    app: GuardedQuart, bearer: Literal["none", "optional", "required"], security: Any
) -> None:
    api = Api(app, "t", "1", failure=Failure)

    @api.operation("GET", "/x", access=Access(owner, bearer=bearer), ok=Unknown)
    async def x(_: str) -> Unknown:
        return Unknown()

    document = api.document()
    assert document["paths"]["/x"]["get"]["security"] == security
    assert document["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"


def test_another_api_has_its_own_failure_and_may_be_a_blueprint() -> None:
    class Problem(BaseModel):
        error: str
        details: RootModel[dict[str, Any]] | None = None

    api = Api(Blueprint("other", "other"), "t", "1", failure=Problem)

    @api.operation("GET", "/x", access=ANYONE, ok=Unknown)
    async def x(_: None) -> Unknown:
        return Unknown()

    answers = api.document()["paths"]["/x"]["get"]["responses"]
    assert answers["500"]["content"][JSON]["schema"] == {"$ref": "#/components/schemas/Problem"}
