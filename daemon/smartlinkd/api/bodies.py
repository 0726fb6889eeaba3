"""Request bodies: read, checked, and every fault told as one `Invalid` that names the field.

Quart's own `get_json` answers 500 to bytes that are not UTF-8 and to deep nesting, so the bytes go
to pydantic's JSON parser as they are. What it finds wrong is told in our words, and never with the
value that is wrong: it may be a password.

A byte order mark is ignored (RFC 8259, section 8.1): some editors and shells write one. What others
of them write, UTF-16, and what is compressed, begins with bytes that say so, and is told as that.

pydantic refuses half a character (a lone surrogate). So each is replaced by U+FFFD before pydantic
reads the body, and put back in the fields that are marked `AsSent`.
"""

from __future__ import annotations

import codecs
import json
from typing import Final, TypeVar

from pydantic import BaseModel, ValidationError
from quart import request

from smartlinkd.errors import Invalid
from smartlinkd.untrusted import replace_lone_surrogates
from smartlinkd.validation import describe_errors
from smartlinkd.wire import AsSent

B = TypeVar("B", bound=BaseModel)

_UTF_16: Final = "is UTF-16; send it as UTF-8"
_NOT_AS_IT_IS: Final = {
    codecs.BOM_UTF16_LE: _UTF_16,
    codecs.BOM_UTF16_BE: _UTF_16,
    b"\x1f\x8b": "is compressed; send it as it is, without Content-Encoding",  # RFC 1952
}
"""What a body is that begins so."""


async def read(model: type[B], *, any_type: bool = False, is_optional: bool = False) -> B:
    """The body of the current request as a `model`. With `any_type` it may be as clients of
    CrewAI's send it: whatever its `Content-Type`, with names in snake_case as well. With
    `is_optional` no body is an empty object.

    Raises `Invalid` for what is wrong with it, and werkzeug's `RequestEntityTooLarge` and
    `RequestTimeout` for a body that is too large or too slow.
    """
    if is_optional and not await request.get_data():
        return parse(model, b"{}")
    if not any_type and request.mimetype != "application/json":
        raise Invalid('Content-Type: must be "application/json"')
    data = await request.get_data()
    assert isinstance(data, bytes)  # noqa: S101 - for the type checker: text is asked for by name
    return parse(model, data, by_name=any_type)


def parse(model: type[B], data: bytes, *, by_name: bool = False) -> B:
    """JSON as a `model`; with `by_name` fields may have our own names, too. Raises `Invalid`."""
    data = data.removeprefix(codecs.BOM_UTF8)
    if not data.strip():
        raise Invalid("the body is empty; send a JSON object")
    if fault := _NOT_AS_IT_IS.get(data[:2]):
        raise Invalid(f"the body {fault}")
    whole = replace_lone_surrogates(data)
    try:
        body = model.model_validate_json(whole, by_alias=True, by_name=by_name)
    except ValidationError as error:
        text = describe_errors(error, whole="the body")
    else:
        if whole is not data:
            _put_halves_back(body, data)
        return body
    raise Invalid(text)  # out here it has no context, which would hold the values


def _put_halves_back(body: BaseModel, data: bytes) -> None:
    """Give each `AsSent` field of `body` its value as `data` has it. `data` is valid JSON."""
    fields = type(body).model_fields.items()
    marked = {
        name: field.alias or name
        for name, field in fields
        if any(isinstance(each, AsSent) for each in field.metadata)
    }
    if marked:
        sent = json.loads(data)
        for name, key in marked.items():
            if key in sent:
                setattr(body, name, sent[key])
