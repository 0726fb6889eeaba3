"""No text of a JSON body is kept after its request.

pydantic caches thousands of short texts by default. Here they are links, products, ids and
passwords, which do not come again; and a password must not stay in memory.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import SecretBytes, SecretStr

from smartlinkd.api.requests import parse_body
from smartlinkd.api.schemas import ConvertRequest, LoginRequest
from smartlinkd.auth.tokens import Tokens
from smartlinkd.crews import protocol
from smartlinkd.store import codec

BEFORE = 500
TIMES = 2000
KEPT = TIMES // 5
"""Memory blocks that may remain. Python itself keeps some hundreds, such as tuples."""

TOKENS = Tokens(SecretBytes(bytes(32)), SecretStr("a hash"))


def as_json(value: Any) -> bytes:
    return json.dumps(value).encode()


def log_in(text: str) -> None:
    parse_body(LoginRequest, as_json({"password": text}))


def convert(text: str) -> None:
    parse_body(ConvertRequest, as_json({"links": [text]}))


def convert_with_half_a_character(text: str) -> None:
    parse_body(ConvertRequest, as_json({"links": [f"{text}\ud83d"]}))


def hear_a_worker(text: str) -> None:
    assert not isinstance(protocol.parse(as_json({"type": "log", "text": text})), str)


def read_the_journal(text: str) -> None:
    assert codec.decode(codec.encode("inputs", [text])) == [text]


def read_a_token(text: str) -> None:
    TOKENS.read(TOKENS.issue("session", jti=text, epoch="now", now=100), "session", now=100)


@pytest.mark.parametrize(
    "handle",
    [log_in, convert, convert_with_half_a_character, hear_a_worker, read_the_journal, read_a_token],
)
def test_no_text_is_kept(handle: Callable[[str], None]) -> None:
    for number in range(BEFORE):
        handle(f"{handle.__name__} before {number}")
    gc.collect()
    before = sys.getallocatedblocks()
    for number in range(TIMES):
        handle(f"{handle.__name__} {number}")
    gc.collect()
    assert sys.getallocatedblocks() - before < KEPT
