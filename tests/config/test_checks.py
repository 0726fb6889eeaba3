"""Settings that work, and leave the owner less protected, or with less, than they may think."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from smartlinkd.config import Settings, build
from smartlinkd.config.checks import LIVE, changes, out_of_reach
from tests.config_file import HASH, WITHOUT_BROWSER

MIB = 1024 * 1024
API = {"source": "open_api"}


@pytest.mark.parametrize(
    ("tables", "keys"),
    [
        ({"server": {"bind": "0.0.0.0:1"}}, []),
        ({"cookie": {"open_to": ["0.0.0.0/0"]}}, []),
        (
            {"server": {"bind": "0.0.0.0:1"}, "cookie": {"open_to": ["10.0.0.0/8"]}},
            ["cookie.open_to"],
        ),
        (
            {"server": {"bind": "[::]:1"}, "cookie": {"open_to": ["127.0.0.0/8", "10.0.0.0/8"]}},
            ["cookie.open_to"],
        ),
        ({"server": {"trusted_proxies": ["127.0.0.1", "::/0"]}}, ["server.trusted_proxies"]),
        ({"server": {"trusted_proxies": ["192.0.2.7"]}}, []),
        ({"marketplace": {"portal_url": "http://10.0.0.1:1"}}, ["marketplace.portal_url"]),
        ({"marketplace": {"shop_url": "http://shop.example"}}, ["marketplace.shop_url"]),
        ({"marketplace": {"portal_url": "http://127.0.0.1:1", "shop_url": "https://x.vn"}}, []),
        ({"marketplace": {"portal_url": "http://localhost:1", "shop_url": "http://[::1]:1"}}, []),
        # Product data would need a cookie that links do not need.
        ({"links": API}, ["products.source"]),
        ({"links": API, "products": {"remember": 60}}, ["products.source"]),
        ({"links": API, "products": {"source": "portal"}}, []),  # it is what the owner wants
        ({"links": API, "products": API}, []),
    ],
)
def test_doubtful_setting_is_a_warning(
    tables: dict[str, dict[str, object]], keys: list[str]
) -> None:
    access = {"app_id": "1", "secret": "hunter2"}
    settings = build({**tables, "auth": {"password_hash": HASH}, "open_api": access})
    assert [warning.key for warning in settings.warnings] == keys


@pytest.mark.parametrize(
    ("memory", "keys"),
    [
        (1024 * MIB, []),
        (1023 * MIB, ["browser.recycle_memory", 'crew "greedy": memory']),
        (400 * MIB, ["browser.recycle_memory", 'crew "greedy": memory']),
        (399 * MIB, ["browser.recycle_memory", 'crew "greedy": memory', 'crew "modest": memory']),
    ],
)
def test_limit_above_the_machines_memory_is_a_warning(memory: int, keys: list[str]) -> None:
    crew = {"runner": "command", "command": ["/bin/true"]}
    crews = [{"name": "greedy", **crew}, {"name": "modest", "memory": 400 * MIB, **crew}]
    settings = build({"auth": {"password_hash": HASH}, "crews": crews})
    assert [warning.key for warning in out_of_reach(settings, memory)] == keys


def test_limit_of_a_chromium_that_is_not_needed_is_no_warning() -> None:
    settings = build({**WITHOUT_BROWSER, "auth": {"password_hash": HASH}})
    assert list(out_of_reach(settings, MIB)) == []


# The changes that a reload can apply


CREW = {"name": "post", "command": ["/bin/true"]}


def settings(**sections: object) -> Settings:
    base: dict[str, object] = {"auth": {"password_hash": HASH}}
    return build(base | sections)


def test_live_changes_are_applied_and_others_wait() -> None:
    new = settings(cookie={"open_to": [], "sync_key": "k" * 32}, browser={"queue": 7}, crews=[CREW])
    found = changes(settings(), new)
    assert found.applied == ("cookie.open_to", "crews")
    assert found.waiting == ("cookie.sync_key", "browser.queue")
    assert found.settings.cookie.open_to == ()
    assert not found.settings.cookie.sync_key
    assert found.settings.browser == settings().browser
    assert [crew.name for crew in found.settings.crews] == ["post"]


def test_combined_settings_after_a_reload_are_checked() -> None:
    old = settings(server={"bind": "0.0.0.0:1"}, cookie={"open_to": []})
    new = settings(cookie={"open_to": ["0.0.0.0/0"]})
    assert (old.warnings, new.warnings) == ((), ())
    (warning,) = changes(old, new).settings.warnings
    assert warning.key == "cookie.open_to"
    assert "while server.bind is 0.0.0.0:1" in warning.fault


def test_example_lists_the_live_keys(pytestconfig: pytest.Config) -> None:
    text = (Path(pytestconfig.rootpath) / "config.example.toml").read_text(encoding="utf-8")
    told = re.search(r"the log names them:\n((?:#   .*\n)+)", text)
    assert told
    live = [f"{name}.{key}" for name, keys in LIVE.items() for key in keys]
    assert re.findall(r"[a-z_]+\.[a-z_]+", told[1]) == live
