"""Fifteen links of every kind in one request, checked entry by entry.

The answer is the same with each method for links and products, in the headless shell and in the
whole Chromium.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from smartlinkd.sandbox.products import PRODUCTS

if TYPE_CHECKING:
    from tests.e2e.conftest import Daemon, Portal

pytestmark = pytest.mark.chromium

INVALID = {"error": True, "failCode": 10}
SUB_IDS = ["telegram", "", "May2024"]


async def test_fifteen_links(any_daemon: Daemon, portal: Portal) -> None:
    shop, account = portal.origins.shop, portal.account()
    ids = [(product.shop_id, product.item_id) for product in PRODUCTS]

    def path(form: str, which: int) -> str:
        return form.format(shop=ids[which][0], item=ids[which][1])

    # Each link with the index in PRODUCTS of its product, or None.
    links = {
        shop + path("/product/{shop}/{item}", 0): 0,
        shop + path("/Ten-san-pham-dai-i.{shop}.{item}?sp_atk=abc&xptdk=abc", 1): 1,
        shop + path("/universal-link/product/{shop}/{item}?utm_source=an_1", 2): 2,
        shop + path("/universal-link/S%C6%B0%CC%80a-i.{shop}.{item}", 3): 3,
        shop + path("/opaanlp/{shop}/{item}?__mobile__=1", 4): 4,
        shop + path("/ten.cua.hang/{shop}/{item}", 5): 5,
        shop.removeprefix("http://") + path("/product/{shop}/{item}", 6): 6,
        portal.short("moved"): 1,
        portal.short("meta"): 2,
        portal.short("chain3"): 0,
        portal.short("p{}i{}".format(*ids[7])): 7,
        "https://shop.example/product/88201679/23456789012": None,
        portal.short("gone"): None,
        "": None,
    }
    asked = [*links, next(iter(links))]
    assert len(asked) == 15
    answer = await any_daemon.convert(*asked, account=account, sub_ids=SUB_IDS)
    assert answer.status_code == 200, answer.text
    assert answer.json() == {
        "ok": True,
        "mapping": {
            link: INVALID if which is None else portal.entry(ids[which][1], account, *SUB_IDS)
            for link, which in links.items()
        },
    }
    assert list(answer.json()["mapping"]) == list(links)
    submits = await portal.submits(account)
    # Eleven links lead to eight products; each is submitted once, in its canonical form.
    submitted = [link for submit in submits for link in submit["originals"]]
    assert sorted(submitted) == sorted(portal.link(item) for _, item in ids[:8])
    places = [*SUB_IDS, "", ""]
    assert [submit["sub_ids"] for submit in submits] == [[places]] * len(submits)
    assert await portal.counted("short link") > 0
    assert await portal.counted("short link with cookie") == 0
