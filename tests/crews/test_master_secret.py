"""The crews' master secret: whose it is, and the keys that come of it."""

from __future__ import annotations

import hashlib
import hmac
import logging
from pathlib import Path

import pytest
from pydantic import SecretBytes, SecretStr

from smartlinkd.crews.tokens import derive, load_master_secret
from smartlinkd.state_files import StateUnusable

NONE = SecretStr("")
MASTER = SecretBytes(bytes(range(32)))


def load(directory: Path, configured: SecretStr = NONE) -> bytes:
    return load_master_secret(directory, configured).get_secret_value()


def test_it_is_made_at_the_first_start_and_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    made = load(tmp_path)

    assert len(made) == 32
    assert load(tmp_path) == made
    assert (tmp_path / "crew-master-secret").stat().st_mode & 0o777 == 0o600
    assert [(r.levelno, r.getMessage()) for r in caplog.records] == [
        (logging.INFO, f"made the crews' master secret {tmp_path}/crew-master-secret")
    ]


def test_a_configured_one_goes_first_and_nothing_is_made(tmp_path: Path) -> None:
    assert load(tmp_path, SecretStr("0aF0" * 16)) == bytes.fromhex("0af0" * 16)
    assert list(tmp_path.iterdir()) == []


def test_a_configured_one_that_is_none_is_refused_unrepeated(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^the crews' master secret must be 64 hex") as refused:
        load(tmp_path, SecretStr("hunter2"))
    assert "hunter2" not in str(refused.value)


def test_a_damaged_one_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "crew-master-secret"
    path.write_text("0aF0")
    path.chmod(0o600)

    with pytest.raises(StateUnusable, match="which makes a new one and gives every crew new"):
        load(tmp_path)

    assert path.read_text() == "0aF0"


def test_one_that_is_lost_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "crew-tokens.json").touch()

    load(tmp_path)

    assert caplog.messages == [
        f"{tmp_path}/crew-master-secret was not there: with the new one every crew has new tokens"
    ]


def test_each_use_has_a_key_of_its_own() -> None:
    key = derive(MASTER, "journal").get_secret_value()

    assert key == hmac.new(bytes(range(32)), b"journal", hashlib.sha256).digest()
    assert key != derive(MASTER, "crew tokens").get_secret_value()
    assert key != derive(SecretBytes(bytes(32)), "journal").get_secret_value()


def test_a_key_does_not_show_itself() -> None:
    key = derive(MASTER, "journal")

    assert repr(key.get_secret_value()) not in f"{key} {key!r}"
