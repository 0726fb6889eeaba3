"""`smartlinkd hash-password`: the hash alone on standard output, or an error on standard error."""

from __future__ import annotations

import getpass
import io
import sys

import argon2
import pytest

from smartlinkd.cli import main
from tests.fakes.terminal import Terminal


@pytest.mark.parametrize("password", ["correct horse", " spaces ", "eight888", "x" * 1024])
@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_piped_password_prints_its_hash_only(
    password: str, end: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(password + end))
    assert main(["hash-password"]) == 0
    out, err = capsys.readouterr()
    assert argon2.PasswordHasher().verify(out.removesuffix("\n"), password)
    assert err == ""


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("", "is empty"),
        ("\n", "is empty"),
        ("seven77", "is shorter than 8 characters"),
        ("x" * 1025, "is longer than 1024 characters"),
        ("x" * 100_000, "is longer than 1024 characters"),
        ("correct\nhorse", "more than one line"),
        ("correct\rhorse", "more than one line"),
    ],
)
def test_invalid_password_is_refused(
    given: str, why: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(given))
    assert main(["hash-password"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert why in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
def test_password_of_invalid_bytes_is_refused(
    errors: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python uses `surrogateescape` for standard input in the locale "C", as under cron."""
    given = io.TextIOWrapper(io.BytesIO(b"caf\xe9 caf\xe9"), "utf-8", errors=errors)
    monkeypatch.setattr(sys, "stdin", given)
    assert main(["hash-password"]) == 1
    out, err = capsys.readouterr()
    assert (out, err) == ("", "smartlinkd: the password is not UTF-8 text\n")


@pytest.mark.parametrize(
    ("typed", "code", "why"),
    [
        (["correct horse", "correct horse"], 0, ""),
        (["correct horse", "correct house"], 1, "the two passwords differ"),
        ([""], 1, "no password was given"),
    ],
)
def test_password_is_asked_for_twice_at_a_terminal(
    typed: list[str],
    code: int,
    why: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    answers = iter(typed)

    def ask(_: str) -> str:
        for answer in answers:
            return answer
        raise EOFError

    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(getpass, "getpass", ask)
    assert main(["hash-password"]) == code
    out, err = capsys.readouterr()
    assert out.startswith("$argon2id$") is (code == 0)
    assert why in err
