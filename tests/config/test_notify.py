"""The `[notify]` table: what it takes, what it refuses, and that it tells no key."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from smartlinkd.auth.passwords import hash_password
from smartlinkd.config import ConfigError, Settings, build, load

HASH = hash_password("correct horse")
KEY = "bot123456:secret-of-the-owner"


def settings(**notify: object) -> Settings:
    return build({"auth": {"password_hash": HASH}, "notify": notify})


def problem(**notify: object) -> str:
    with pytest.raises(ConfigError) as raised:
        settings(**notify)
    (found,) = raised.value.problems
    assert KEY not in str(found)
    return str(found)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:9000",
        "http://[::1]:9000/x",
        "https://10.0.0.7/tell",
        f"https://api.example/{KEY}/send?chat_id=1&x=%20",
        "",
    ],
)
def test_any_http_url_is_accepted_and_hidden(url: str) -> None:
    made = settings(url=url).notify
    assert made.url.get_secret_value() == url
    assert KEY not in repr(made)


@pytest.mark.parametrize(
    "url",
    [
        f"ftp://tell.example/{KEY}",
        f"tell.example/{KEY}",
        f"https://tell.example/{KEY} x",
        f"https://tell.example/{KEY}#part",
        f"https://tell.example/{KEY}/giá",
        f"https://user:{KEY}@tell.example/",
    ],
)
def test_invalid_url_is_refused_without_repeating_it(url: str) -> None:
    assert problem(url=url).startswith("notify.url: must ")


def test_url_may_be_in_a_file(tmp_path: Path) -> None:
    secret = tmp_path / "url"
    secret.write_text(f"https://tell.example/{KEY}\n")
    secret.chmod(0o600)
    config = tmp_path / "config.toml"
    config.write_text(
        f"[auth]\npassword_hash = '{HASH}'\n[notify]\nurl_file = '{secret}'\n", encoding="utf-8"
    )
    config.chmod(0o600)
    assert load(config, {}).notify.url.get_secret_value().endswith(KEY)


def test_command_is_words_that_begin_with_a_path() -> None:
    assert settings(command=["/usr/bin/tell", "a b", ""]).notify.command == (
        "/usr/bin/tell",
        "a b",
        "",
    )
    assert settings().notify.command == ()
    assert problem(command=["tell"]) == (
        "notify.command: must begin with the program's absolute path; "
        'for example command = ["/usr/local/bin/tell-me"]'
    )
    assert "must be a list" in problem(command="/usr/bin/tell")
    assert "NUL" in problem(command=["/usr/bin/tell", "a\0b"])


@pytest.mark.parametrize(
    ("command", "warned"), [("/bin/true", False), ("/nowhere/tell", True), ("/etc/passwd", True)]
)
def test_program_that_cannot_be_run_is_a_warning(
    command: str, warned: bool, tmp_path: Path
) -> None:
    config = tmp_path / "config.toml"
    state = tmp_path / "state"
    config.write_text(
        f"[auth]\npassword_hash = '{HASH}'\n[state]\ndirectory = '{state}'\n"
        f"[notify]\ncommand = ['{command}']\n"
    )
    config.chmod(0o600)
    checked = subprocess.run(
        [sys.executable, "-m", "smartlinkd", "check-config", str(config)],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
        env={"PATH": os.defpath},
        cwd=Path(__file__).parents[2],
    )
    told = "warning: notify.command: names a program that is not there" in checked.stderr
    assert told == warned
