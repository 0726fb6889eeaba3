"""What of a changed configuration can be taken up, and what needs a restart."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from smartlinkd.auth.passwords import hash_password
from smartlinkd.config import Settings, build
from smartlinkd.config.changes import LIVE, changes
from smartlinkd.config.settings import SECTIONS

HASH = hash_password("correct horse")
CREW = {"name": "post", "command": ["/bin/true"]}


def settings(**sections: object) -> Settings:
    base: dict[str, object] = {"auth": {"password_hash": HASH}}
    return build(base | sections)


def test_the_same_twice_is_no_change() -> None:
    found = changes(settings(), settings())
    assert (found.taken, found.waiting, found.settings) == ((), (), settings())


def test_what_is_live_is_taken_and_the_rest_waits() -> None:
    new = settings(cookie={"open_to": [], "sync_key": "k" * 32}, browser={"queue": 7}, crews=[CREW])
    found = changes(settings(), new)
    assert found.taken == ("cookie.open_to", "crews")
    assert found.waiting == ("cookie.sync_key", "browser.queue")
    assert found.settings.cookie.open_to == ()
    assert not found.settings.cookie.sync_key
    assert found.settings.browser == settings().browser
    assert [crew.name for crew in found.settings.crews] == ["post"]


def test_what_waits_is_told_again_until_the_restart() -> None:
    new = settings(browser={"queue": 7})
    first = changes(settings(), new)
    assert changes(first.settings, new).waiting == ("browser.queue",)


def test_what_only_both_together_come_to_is_warned_of() -> None:
    old = settings(server={"bind": "0.0.0.0:1"}, cookie={"open_to": []})
    new = settings(cookie={"open_to": ["0.0.0.0/0"]})
    assert (old.warnings, new.warnings) == ((), ())
    (warning,) = changes(old, new).settings.warnings
    assert warning.key == "cookie.open_to"
    assert "while server.bind is 0.0.0.0:1" in warning.fault


def test_another_hash_is_taken() -> None:
    other = hash_password("open barley")
    found = changes(settings(), settings(auth={"password_hash": other}))
    assert found.taken == ("auth.password_hash",)
    assert found.settings.auth.password_hash.get_secret_value() == other


@pytest.mark.parametrize("section", LIVE)
def test_every_live_key_is_one(section: str) -> None:
    assert set(LIVE[section]) <= set(SECTIONS[section].model_fields)


def test_the_owner_is_told_the_same(pytestconfig: pytest.Config) -> None:
    text = (Path(pytestconfig.rootpath) / "config.example.toml").read_text(encoding="utf-8")
    told = re.search(r"the log names them:\n((?:#   .*\n)+)", text)
    assert told
    live = [f"{name}.{key}" for name, keys in LIVE.items() for key in keys]
    assert re.findall(r"[a-z_]+\.[a-z_]+", told[1]) == live
