"""Secrets of a program are not in what is quoted of it, however it writes them."""

from __future__ import annotations

import json

import pytest

from smartlinkd.processes.output import CUT, Redactor

SECRETS = {
    "PLAIN": "PLAINSECRETVALUE0123456789",
    "QUOTES": 'correct"horse\\battery',
    "URL": "https://user:hunter2secret@db.example/x",
    "WORDS": "Mật-khẩu-bí-mật",
    "PART": "hunter2secret",
    "SHORT": "yes",
}


@pytest.mark.parametrize("name", [name for name in SECRETS if name not in ("SHORT", "PART")])
@pytest.mark.parametrize("way", ["as it is", "ASCII", "not ASCII", "slashes", "capitals"])
def test_every_way_to_write_a_secret_is_redacted(name: str, way: str) -> None:
    value = SECRETS[name]
    written = {
        "as it is": value,
        "ASCII": json.dumps({"a": value}),
        "not ASCII": json.dumps({"a": value}, ensure_ascii=False),
        "slashes": json.dumps({"a": value}).replace("/", "\\/"),
        "capitals": json.dumps({"a": value}).replace("\\u1ead", "\\u1EAD").replace(
            "\\u1ea9", "\\u1EA9").replace("\\u00ed", "\\u00ED"),
    }[way]  # fmt: skip
    hidden = Redactor(SECRETS).redact(f"before {written} after")
    assert hidden in (f"before [{name}] after", f'before {{"a": "[{name}]"}} after')


def test_value_that_is_too_short_for_a_secret_stays() -> None:
    assert Redactor(SECRETS).redact("yes, hunter2") == "yes, hunter2"


@pytest.mark.parametrize("name", ["PLAIN", "WORDS"])
def test_cut_text_keeps_no_end_of_a_secret(name: str) -> None:
    secret = SECRETS[name].encode()
    for lost in range(1, len(secret)):
        # As `OutputTail` cuts it, within a character too.
        rest = (secret[lost:] + b" word").decode(errors="replace").lstrip("\ufffd")
        assert Redactor(SECRETS).redact_tail(CUT + rest) == CUT + " word"


def test_whole_text_keeps_its_beginning() -> None:
    assert Redactor(SECRETS).redact_tail("9 lives") == "9 lives"
