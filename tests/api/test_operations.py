"""The OpenAPI document of a table of operations. Other tests check what the real tables serve."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from smartlinkd.api.document import document as document_of
from smartlinkd.api.operations import Access, Api
from smartlinkd.http_server import GuardedQuart
from smartlinkd.wire import In, Parameters


class Failure(BaseModel):
    ok: Literal[False] = False
    error: str


class Greeting(BaseModel):
    first_name: str = Field(alias="firstName", description="how to call you")


class Greeted(BaseModel):
    text: str
    shared: Greeting | None = None


class InTown(Parameters):
    town: Annotated[str, In("path"), Field(examples=["Huế"], description="where")]


class Asked(Parameters):
    name: Annotated[str, In("path")]
    times: Annotated[int, In("query"), Field(ge=1, le=9, description="how often")] = 1
    mood: Annotated[Literal["good", "bad"] | None, In("query")] = None
    key: Annotated[str | None, In("header"), Field(alias="X-Key", min_length=2)] = None


async def anyone() -> None:
    return None


ANYONE = Access(anyone, bearer_use="none", refusals=())


@pytest.fixture
def document() -> Any:
    api = Api(GuardedQuart(), failure=Failure, under="/towns/{town}", shared=InTown)

    @api.operation("POST", "/greet", access=ANYONE, body=Greeting, ok=Greeted, errors=(429, 502))
    async def greet(_: None, body: Greeting) -> Greeted:
        """Say hello.

        To the one who calls.
        """
        return Greeted(text=body.first_name)

    @api.operation("GET", "/people/{name}", access=ANYONE, asks=Asked, ok=Greeted)
    async def person(_: None, asked: Asked) -> Greeted:
        return Greeted(text=asked.name)

    return document_of([api])


def test_operation_has_its_docstring_required_fields_and_retry_after(document: Any) -> None:
    greet = document["paths"]["/towns/{town}/greet"]["post"]
    assert greet["operationId"] == "greet"
    assert greet["summary"] == "Say hello."
    assert greet["description"] == "To the one who calls."
    schemas = document["components"]["schemas"]
    assert schemas["Greeted"]["required"] == ["text", "shared"]
    assert schemas["Failure"]["required"] == ["ok", "error"]
    answers = greet["responses"]
    assert answers["429"]["headers"]["Retry-After"]["required"] is True
    assert "Retry-After" not in answers["502"]["headers"]


def test_parameters_are_documented_where_they_stand(document: Any) -> None:
    person = document["paths"]["/towns/{town}/people/{name}"]["get"]
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
