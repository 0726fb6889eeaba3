"""The files of the auth actor: what survives a restart, and what stops a start."""

from __future__ import annotations

import json
import logging
import traceback
from pathlib import Path

import pytest
from pydantic import SecretStr

from smartlinkd.auth import files
from smartlinkd.auth.files import (
    SavedState,
    adopt_password,
    load,
    save,
    save_password,
)
from smartlinkd.auth.totp import SecondFactor
from smartlinkd.state_files import NotSaved, StateUnusable
from tests.fakes.files import write_private

SECRET = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ"
STATE = SavedState(
    version=1,
    epoch="first",
    spared="one",
    second_factor=SecondFactor(SecretStr(SECRET), (1, 2)),
)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_saved_state_is_private_and_loaded_again(tmp_path: Path) -> None:
    save(tmp_path, STATE)

    assert load(tmp_path) == STATE
    assert mode(tmp_path / "auth.json") == 0o600
    assert json.loads((tmp_path / "auth.json").read_text()) == {
        "version": 1,
        "epoch": "first",
        "spared": "one",
        "second_factor": {"secret": SECRET, "used_steps": [1, 2]},
    }


@pytest.mark.parametrize(
    ("there", "level"),
    [("", logging.INFO), ("signing-secret", logging.WARNING), ("password-digest", logging.WARNING)],
)
def test_missing_state_is_made_with_a_warning_unless_at_the_first_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, there: str, level: int
) -> None:
    caplog.set_level(logging.INFO)
    if there:
        write_private(tmp_path / there, "0aF0" * 16)
    made = load(tmp_path)

    assert made == SavedState(version=1, epoch=made.epoch, spared=None, second_factor=None)
    assert load(tmp_path) == made
    assert caplog.record_tuples == [
        (
            "smartlinkd.auth.files",
            level,
            f"{tmp_path}/auth.json was not there: made one, with the second factor off",
        )
    ]


def test_lost_state_brings_no_token_back(tmp_path: Path) -> None:
    before = load(tmp_path).epoch
    (tmp_path / "auth.json").unlink()

    assert load(tmp_path).epoch != before


@pytest.mark.parametrize("known", ["e" * 32 + "\n", "d" * 31, "d" * 5000, "", b"\xff"])
def test_other_password_or_damaged_digest_ends_every_session(
    tmp_path: Path, known: str | bytes, caplog: pytest.LogCaptureFixture
) -> None:
    save(tmp_path, STATE)
    write_private(tmp_path / "password-digest", known)

    begun = adopt_password(tmp_path, STATE, "d" * 32)

    assert begun == load(tmp_path)
    assert (begun.spared, begun.second_factor) == (None, STATE.second_factor)
    assert begun.epoch != STATE.epoch
    assert (tmp_path / "password-digest").read_text() == "d" * 32 + "\n"
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_epoch_is_saved_before_the_password_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other way round a failure between the two would leave the sessions."""
    save(tmp_path, STATE)
    save_password(tmp_path, "e" * 32)

    def full(*_: object) -> None:
        raise NotSaved("no room")

    monkeypatch.setattr(files, "save_password", full)
    with pytest.raises(NotSaved):
        adopt_password(tmp_path, STATE, "d" * 32)

    assert load(tmp_path).epoch != "first"
    assert (tmp_path / "password-digest").read_text() == "e" * 32 + "\n"


def good() -> dict[str, object]:
    return {
        "version": 1,
        "epoch": "first",
        "spared": None,
        "second_factor": {"secret": SECRET, "used_steps": []},
    }


DAMAGED = {
    "empty": "",
    "cut off": json.dumps(good())[:-1],
    "no object": "[]",
    "not UTF-8": b"\xff",
    "newer": json.dumps({**good(), "version": 2}),
    "unknown field": json.dumps({**good(), "more": 1}),
    "no second factor": json.dumps({k: v for k, v in good().items() if k != "second_factor"}),
    "no secret": json.dumps({**good(), "second_factor": {"used_steps": []}}),
    "no steps": json.dumps({**good(), "second_factor": {"secret": SECRET}}),
    "bad secret": json.dumps({**good(), "second_factor": {"secret": SECRET[1:], "used_steps": []}}),
    "bad step": json.dumps({**good(), "second_factor": {"secret": SECRET, "used_steps": ["1"]}}),
    "strange factor": json.dumps(
        {**good(), "second_factor": {"secret": SECRET, "used_steps": [], "more": 1}}
    ),
    "bad epoch": json.dumps({**good(), "epoch": 1}),
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=list(DAMAGED))
def test_damaged_state_is_refused_and_kept(content: str | bytes, tmp_path: Path) -> None:
    path = write_private(tmp_path / "auth.json", content)
    before = path.read_bytes()

    with pytest.raises(StateUnusable) as refused:
        load(tmp_path)

    assert str(refused.value) == (
        f"{path} is damaged, or of another version of smartlinkd: restore it from a backup, "
        "or delete it, which switches the second factor off and ends every session"
    )
    assert SECRET[1:] not in "".join(traceback.format_exception(refused.value))
    assert SECRET[1:] not in str(refused.value.__context__)
    assert path.read_bytes() == before
