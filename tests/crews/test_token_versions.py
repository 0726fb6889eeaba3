"""`crew-tokens.json`: what it remembers, what becomes of a lost or a damaged one."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from smartlinkd.crews.tokens import TokenVersions, load_versions, save_versions
from smartlinkd.errors import Invalid
from smartlinkd.state_files import NotSaved, StateUnusable

A, B, C = "a" * 32, "b" * 32, "c" * 32
SOME = TokenVersions(version=1, first=A, rotated={"post": {"": B, "ann": C}})


def written(directory: Path, content: str | bytes) -> Path:
    path = directory / "crew-tokens.json"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    path.chmod(0o600)
    return path


def good() -> dict[str, Any]:
    return {"version": 1, "first": A, "rotated": {"post": {"": B, "ann": C}}}


def test_what_was_never_rotated_has_the_first_one() -> None:
    assert [SOME.of(*whose) for whose in (("post", ""), ("post", "ann"))] == [B, C]
    assert [SOME.of(*whose) for whose in (("post", "bob"), ("mail", ""), ("mail", "ann"))] == [
        A
    ] * 3


@pytest.mark.parametrize("whose", [("post", ""), ("post", "ann"), ("post", "bob"), ("mail", "ann")])
def test_a_rotation_is_of_one_alone(whose: tuple[str, str]) -> None:
    everyone = [(crew, user) for crew in ("post", "mail") for user in ("", "ann", "bob")]

    changed = SOME.with_new(*whose)

    assert {one for one in everyone if changed.of(*one) != SOME.of(*one)} == {whose}
    assert SOME.rotated == {"post": {"": B, "ann": C}}


def test_version_cannot_be_guessed_and_does_not_repeat() -> None:
    words = {SOME.with_new("post", "").of("post", "") for _ in range(100)}

    assert len(words) == 100
    assert all(re.fullmatch("[0-9a-f]{32}", word) for word in words)


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    save_versions(tmp_path, SOME)

    assert load_versions(tmp_path) == SOME
    assert json.loads((tmp_path / "crew-tokens.json").read_text()) == good()
    assert (tmp_path / "crew-tokens.json").stat().st_mode & 0o777 == 0o600


def test_the_first_start_makes_one_and_that_is_no_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    made = load_versions(tmp_path)

    assert made.rotated == {}
    assert load_versions(tmp_path) == made
    assert [(r.levelno, r.getMessage()) for r in caplog.records] == [
        (
            logging.INFO,
            f"{tmp_path}/crew-tokens.json was not there: made one; the tokens of all crews are new",
        )
    ]


def test_a_lost_one_brings_nothing_back(tmp_path: Path) -> None:
    before = load_versions(tmp_path)
    save_versions(tmp_path, before.with_new("post", ""))
    (tmp_path / "crew-tokens.json").unlink()

    assert load_versions(tmp_path).of("post", "") != before.of("post", "")


DAMAGED = {
    "empty": "",
    "cut off": json.dumps(good())[:-1],
    "no object": "[]",
    "not UTF-8": b"\xff",
    "newer": json.dumps({**good(), "version": 2}),
    "unknown field": json.dumps({**good(), "more": 1}),
    "no first": json.dumps({"version": 1, "rotated": {}}),
    "a short first": json.dumps({**good(), "first": "a"}),
    "no rotated": json.dumps({"version": 1, "first": A}),
    "strange rotated": json.dumps({**good(), "rotated": {"post": B}}),
    "an empty word": json.dumps({**good(), "rotated": {"post": {"": ""}}}),
    "more than a word": json.dumps({**good(), "rotated": {"post": {"": B + "\n"}}}),
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=list(DAMAGED))
def test_a_damaged_one_is_refused_and_kept(content: str | bytes, tmp_path: Path) -> None:
    path = written(tmp_path, content)
    before = path.read_bytes()

    with pytest.raises(StateUnusable) as refused:
        load_versions(tmp_path)

    assert str(refused.value) == (
        f"{path} is damaged, or of another version of smartlinkd: restore it from a backup, "
        "or delete it, which gives every crew new tokens"
    )
    assert path.read_bytes() == before


def test_one_open_to_others_is_refused(tmp_path: Path) -> None:
    written(tmp_path, json.dumps(good())).chmod(0o640)

    with pytest.raises(StateUnusable, match=r"crew-tokens\.json is open to other users"):
        load_versions(tmp_path)


def test_one_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotSaved, match=r"crew-tokens\.json could not be written"):
        save_versions(tmp_path / "gone", SOME)


def test_file_over_its_limit_is_refused_and_the_saved_one_stays(tmp_path: Path) -> None:
    full = TokenVersions(
        version=1, first=A, rotated={"post": {f"user-{i}": B for i in range(30_000)}}
    )
    save_versions(tmp_path, SOME)

    with pytest.raises(Invalid, match="would have more than 1048576 bytes; stop the daemon and"):
        save_versions(tmp_path, full)

    assert load_versions(tmp_path) == SOME
