"""The `[notify]` table: what it takes, what it refuses, and that it tells no key."""

from __future__ import annotations

import pytest

from smartlinkd.auth.passwords import hash_password
from smartlinkd.config import ConfigError, Settings, build

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
