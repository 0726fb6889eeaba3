"""What works, and leaves the owner less protected, or with less, than they may think."""

from __future__ import annotations

import pytest

from smartlinkd.auth.passwords import hash_password
from smartlinkd.config import build
from smartlinkd.config.checks import out_of_reach

HASH = hash_password("correct horse")
MIB = 1024 * 1024


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
    ],
)
def test_what_leaves_the_owner_exposed_is_a_warning(
    tables: dict[str, dict[str, object]], keys: list[str]
) -> None:
    settings = build({**tables, "auth": {"password_hash": HASH}})
    assert [warning.key for warning in settings.warnings] == keys


@pytest.mark.parametrize(
    ("links", "products", "keys"),
    [
        ({"source": "open_api"}, {}, ["products.source"]),
        ({"source": "open_api"}, {"remember": 60}, ["products.source"]),
        ({"source": "open_api"}, {"source": "portal"}, []),  # it is what the owner wants
        ({"source": "open_api"}, {"source": "open_api"}, []),
        ({}, {}, []),
    ],
)
def test_products_that_would_be_null_for_want_of_a_cookie_are_a_warning(
    links: dict[str, object], products: dict[str, object], keys: list[str]
) -> None:
    api = {"app_id": "1", "secret": "hunter2"}
    tables = {"links": links, "products": products, "open_api": api}
    settings = build({**tables, "auth": {"password_hash": HASH}})
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
def test_a_limit_above_what_there_is_is_a_warning(memory: int, keys: list[str]) -> None:
    crew = {"runner": "command", "command": ["/bin/true"]}
    crews = [{"name": "greedy", **crew}, {"name": "modest", "memory": 400 * MIB, **crew}]
    settings = build({"auth": {"password_hash": HASH}, "crews": crews})
    assert [warning.key for warning in out_of_reach(settings, memory)] == keys


def test_a_chromium_that_is_not_started_has_no_limit() -> None:
    api = {"app_id": "1", "secret": "hunter2"}
    sources = {"links": {"source": "open_api"}, "products": {"source": "none"}, "open_api": api}
    settings = build({**sources, "auth": {"password_hash": HASH}})
    assert list(out_of_reach(settings, MIB)) == []
