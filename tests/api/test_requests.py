"""Errors of bodies and parameters name the field and do not show the value."""

from __future__ import annotations

import codecs
import gzip
from typing import Annotated

import pytest
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr

from smartlinkd.api.requests import parse_body, read_parameters
from smartlinkd.errors import Invalid
from smartlinkd.http_server import GuardedQuart
from smartlinkd.wire import AsSent, Body, In, Parameters


def even(value: int) -> int:
    if value % 2:
        raise ValueError("must be even; add one")
    return value


class Inner(BaseModel):
    name: str


class Order(BaseModel):
    model_config = ConfigDict(strict=True)

    links: Annotated[list[str], Field(min_length=1, max_length=4)]
    password: SecretStr | None = None
    count: Annotated[int, Field(ge=1, le=10), AfterValidator(even)] = 2
    flag: bool = False
    inner: Inner | None = None
    kind: Annotated[str, Field(min_length=2, max_length=3, pattern="^[a-z]+$")] = "ab"


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (b"", "the body is empty; send a JSON object"),
        (codecs.BOM_UTF8, "the body is empty; send a JSON object"),
        (codecs.BOM_UTF8 + b"[]", "the body must be an object"),
        ("\ufeff{}".encode("utf-16-le"), "the body is UTF-16; send it as UTF-8"),
        ("\ufeff{}".encode("utf-16-be"), "the body is UTF-16; send it as UTF-8"),
        (gzip.compress(b"{}", mtime=0),
         "the body is compressed; send it as it is, without Content-Encoding"),
        (b"[]", "the body must be an object"),
        (b'"x"', "the body must be an object"),
        (b"null", "the body must be an object"),
        (b"{}", "links: is missing"),
        (b'{"links": null}', "links: must be an array"),
        (b'{"links": []}', "links: has too few items (at least 1)"),
        (b'{"links": ["", "", "", "", ""]}', "links: has too many items (at most 4)"),
        (b'{"links": ["", "", "", 4]}', "links.3: must be a string"),
        (rb'{"links": ["\ud83d", 1]}', "links.1: must be a string"),
        (b'{"links": [""], "count": "2"}', "count: must be a whole number"),
        (b'{"links": [""], "count": 2.5}', "count: must be a whole number"),
        (b'{"links": [""], "count": 0}', "count: must be 1 or more"),
        (b'{"links": [""], "count": 11}', "count: must be 10 or less"),
        (b'{"links": [""], "count": 3}', "count: must be even; add one"),
        (b'{"links": [""], "flag": 1}', "flag: must be true or false"),
        (b'{"links": [""], "inner": 1}', "inner: must be an object"),
        (b'{"links": [""], "inner": {}}', "inner.name: is missing"),
        (b'{"links": [""], "kind": "a"}', "kind: is too short (at least 2 characters)"),
        (b'{"links": [""], "kind": "abcd"}', "kind: is too long (at most 3 characters)"),
        (b'{"links": [""], "kind": "AB"}', "kind: must match ^[a-z]+$"),
        (b'{"links": [1, 2, 3], "flag": 1, "count": 0, "kind": 1}',
         "links.0: must be a string; links.1: must be a string; links.2: must be a string; "
         "count: must be 1 or more; flag: must be true or false; and 1 more"),
    ],
)  # fmt: skip
def test_fault_of_a_body_is_named(body: bytes, fault: str) -> None:
    with pytest.raises(Invalid) as refused:
        parse_body(Order, body)
    assert str(refused.value) == fault


@pytest.mark.parametrize(
    "body",
    [b"{", b'{"links": [""],}', b"{'links': []}", b'"\xff"', b'{"links": ["\xed\xa0\xbd"]}',
     b"[" * 100_000, b'{"a":' * 100_000, b"\xfe{}", b'{"links": [""]} x', b"\0",
     b'{"links": ["\\ud83d"]', b'{"links": ["\\ud83d\\ud8"]}',
     b'{"links": ["\\ud83d\xed\xa0\xbd"]}',
     b'["\\ud83d",' * 100_000, b'{"links": ["\\ud83d"], "a": %b}' % (b"9" * 5_000),
     b'{"links": ["\\ud83d"], "a": %b%b}' % (b"[" * 5_000, b"]" * 5_000)],
)  # fmt: skip
def test_body_that_is_no_json_is_refused(body: bytes) -> None:
    with pytest.raises(Invalid, match=r"^the body is not valid JSON: "):
        parse_body(Order, body)


@pytest.mark.parametrize("mark", [b"", codecs.BOM_UTF8])
def test_lone_surrogate_stays_in_an_as_sent_field(mark: bytes) -> None:
    class Letter(Body):
        to_whom: Annotated[list[str] | None, AsSent()] = None
        text: str

    body = rb'{"toWhom": ["x"], "toWhom": ["a\ud83d", "\uDE00b", "\ud83d\ude00"], "text": "\ud83d"}'
    letter = parse_body(Letter, mark + body)
    assert letter.to_whom == ["a\ud83d", "\ude00b", "\U0001f600"]
    assert letter.text == "\ufffd"
    assert parse_body(Letter, rb'{"text": "\ud83d"}').to_whom is None


def test_unknown_fields_duplicates_and_nan_are_taken() -> None:
    order = parse_body(Order, b'{"new": NaN, "links": ["a"], "links": ["b"]}')
    assert order.links == ["b"]


def test_wrong_value_is_nowhere_in_the_error() -> None:
    with pytest.raises(Invalid) as refused:
        parse_body(Order, b'{"links": ["a"], "password": ["hunter2"], "kind": "HUNTER2"}')
    assert "hunter2" not in str(refused.value).lower()
    assert refused.value.__cause__ is None
    assert refused.value.__context__ is None


def test_long_key_is_cut_in_the_error() -> None:
    class Loose(BaseModel):
        numbers: dict[str, int]

    with pytest.raises(Invalid) as refused:
        parse_body(Loose, b'{"numbers": {"%b": "x"}}' % (b"k" * 5000))
    assert len(str(refused.value)) < 200


# Parameters


class Asked(Parameters):
    limit: Annotated[int, In("query"), Field(le=100)] = 100


async def test_first_of_two_parameters_counts() -> None:
    async with GuardedQuart().test_request_context("/?limit=7&limit=8&new=x"):
        assert read_parameters(Asked) == Asked(limit=7)


async def test_wrong_parameter_is_nowhere_in_the_error() -> None:
    """The value is not in the error's cause or context either, which a traceback would show."""
    async with GuardedQuart().test_request_context("/?limit=hunter2"):
        with pytest.raises(Invalid, match=r"^limit: ") as refused:
            read_parameters(Asked)
    assert "hunter2" not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__context__ is None
