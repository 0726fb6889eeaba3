"""The table of operations: what it serves and what it documents."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field
from quart import Response, request
from quart.typing import ResponseReturnValue
from werkzeug.exceptions import HTTPException

from smartlinkd.api.document import document as document_of
from smartlinkd.api.operations import Access, Api
from smartlinkd.errors import Invalid, NotAllowed
from smartlinkd.http_server import GuardedQuart
from smartlinkd.wire import In, Parameters

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


ANYONE = Access(anyone, bearer="none", refusals=())
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
    made = Api(app, failure=Failure)

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

    @made.operation("GET", "/next", access=ANYONE, ok=Unknown, head=False)
    async def take_next(_: None) -> Unknown:
        return Unknown()

    return made


@pytest.fixture
def document(api: Api) -> Any:
    return document_of([api])


# What it serves


async def test_handler_gets_the_caller_and_the_checked_body(app: GuardedQuart, api: Api) -> None:
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


# What it says


def test_operation_is_described_by_its_docstring(document: Any) -> None:
    greet = document["paths"]["/greet"]["post"]
    assert greet["operationId"] == "greet"
    assert greet["summary"] == "Say hello."
    assert greet["description"] == "To the one who calls."


def test_fields_of_answers_are_required(document: Any) -> None:
    schemas = document["components"]["schemas"]
    assert schemas["Greeted"]["required"] == ["text", "shared"]
    assert schemas["Failure"]["required"] == ["ok", "error"]


def test_temporary_errors_have_retry_after(document: Any) -> None:
    answers = document["paths"]["/greet"]["post"]["responses"]
    assert answers["429"]["headers"]["Retry-After"]["required"] is True
    assert "Retry-After" not in answers["502"]["headers"]


# Several tables in one document


class Problem(BaseModel):
    error: str
    details: Annotated[dict[str, Any], Field(exclude_if=lambda details: not details)] = {}


class InTown(Parameters):
    town: Annotated[str, In("path"), Field(examples=["Huế"], description="where")]


class Asked(Parameters):
    name: Annotated[str, In("path")]
    times: Annotated[int, In("query"), Field(ge=1, le=9, description="how often")] = 1
    mood: Annotated[Literal["good", "bad"] | None, In("query")] = None
    key: Annotated[str | None, In("header"), Field(alias="X-Key", min_length=2)] = None


@pytest.fixture
def towns(app: GuardedQuart) -> Api:
    """Served once under a town of the client's choice, and once at `/` for one."""
    made = Api(app, failure=Problem, meanings={500: "Closed"}, under="/towns/{town}", shared=InTown)
    for api in (made, Api(app, failure=Problem, given={"town": "Vinh"})):
        _add_to(api)
    return made


def _add_to(api: Api) -> None:
    async def town() -> str:
        return str((request.view_args or {})["town"])

    access = Access(town, bearer="none", refusals=())

    @api.operation("GET", "/people/{name}", access=access, asks=Asked, ok=Greeted, also="/{name}/x")
    async def person(where: str, asked: Asked) -> Greeted:
        return Greeted(text=f"{where} {asked!r}")

    @api.operation("POST", "/people", access=access, asks=InTown, body=Greeting, ok=Greeted)
    async def settle(where: str, asked: InTown, body: Greeting) -> Greeted:
        return Greeted(text=f"{where} {asked.town} {body.first_name}")

    @api.operation("GET", "/", access=access, ok=Response, media="text/plain")
    async def sign(where: str) -> Response:
        return Response(where, content_type="text/plain; charset=utf-8")


async def test_parameters_are_read_from_path_and_query(app: GuardedQuart, towns: Api) -> None:
    for path, text in [
        ("/towns/Da%20Lat/people/Ada", "Da Lat Asked(name='Ada', times=1, mood=None, key=None)"),
        ("/towns/a/Ada/x?times=9&mood=bad", "a Asked(name='Ada', times=9, mood='bad', key=None)"),
        ("/people/Ada?times=2&times=x&no", "Vinh Asked(name='Ada', times=2, mood=None, key=None)"),
    ]:
        response = await app.test_client().get(path)
        assert (await response.get_json())["text"] == text, path


async def test_header_parameter_is_read(app: GuardedQuart, towns: Api) -> None:
    response = await app.test_client().get("/people/Ada", headers={"x-key": "ab"})
    assert "key='ab'" in (await response.get_json())["text"]


async def test_parameters_are_read_beside_a_body(app: GuardedQuart, towns: Api) -> None:
    for path, where in (("/towns/a/people", "a"), ("/people", "Vinh")):
        response = await app.test_client().post(path, json={"firstName": "Ada"})
        assert (await response.get_json())["text"] == f"{where} {where} Ada"


async def test_wrong_parameter_is_400_that_names_it(app: GuardedQuart, towns: Api) -> None:
    for query, headers, error in [
        ("?times=0", {}, "times: must be 1 or more"),
        ("?times=10", {}, "times: must be 9 or less"),
        ("?times=x", {}, "times: must be a whole number"),
        ("?times=", {}, "times: must be a whole number"),
        ("?times=1.5", {}, "times: must be a whole number"),
        ("?mood=fair", {}, "mood: must be 'good' or 'bad'"),
        ("", {"X-Key": "a"}, "X-Key: is too short (at least 2 characters)"),
        ("?times=0&mood=", {}, "times: must be 1 or more; mood: must be 'good' or 'bad'"),
    ]:
        response = await app.test_client().get(f"/people/Ada{query}", headers=headers)
        assert (response.status_code, (await response.get_json())["error"]) == (400, error), query


async def test_response_of_the_handler_is_sent_as_it_is(app: GuardedQuart, towns: Api) -> None:
    for path in ["/towns/a", "/towns/a/", "/"]:
        response = await app.test_client().get(path)
        assert await response.get_data(as_text=True) == ("Vinh" if path == "/" else "a"), path
        assert response.headers["Content-Type"] == "text/plain; charset=utf-8", path
        assert response.headers["Cache-Control"] == "no-store", path


async def test_parameters_are_documented_where_they_stand(towns: Api) -> None:
    person = document_of([towns])["paths"]["/towns/{town}/people/{name}"]["get"]
    assert person["parameters"] == [
        {"name": "town", "in": "path", "required": True, "description": "where", "example": "Huế",
         "schema": {"type": "string"}},
        {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}},
        {"name": "times", "in": "query", "required": False, "description": "how often",
         "schema": {"type": "integer", "minimum": 1, "maximum": 9, "default": 1}},
        {"name": "mood", "in": "query", "required": False,
         "schema": {"type": "string", "enum": ["good", "bad"]}},
        {"name": "X-Key", "in": "header", "required": False,
         "schema": {"type": "string", "minLength": 2}},
    ]  # fmt: skip
    assert set(person["responses"]) == {"200", "400", "500"}


async def test_each_api_has_its_own_failure_and_meanings(api: Api, towns: Api) -> None:
    document = document_of([api, towns])
    ours = document["paths"]["/health"]["get"]["responses"]["500"]
    theirs = document["paths"]["/towns/{town}"]["get"]["responses"]["500"]
    assert ours["content"][JSON]["schema"] == {"$ref": "#/components/schemas/Failure"}
    assert theirs["content"][JSON]["schema"] == {"$ref": "#/components/schemas/Problem"}
    assert (ours["description"], theirs["description"]) == ("Internal error", "Closed")
