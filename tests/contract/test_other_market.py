"""Another market: its own addresses, links with a port, and its currency.

An HTTP server on loopback plays the market's Open API.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.market import Reply, by_open_api, host

if TYPE_CHECKING:
    from tests.contract.conftest import Daemon, Running

pytestmark = pytest.mark.chromium

INVALID = {"error": True, "failCode": 10}
SHORT = "https://s.shopee.co.th/Made1"
OFFER = {
    "productName": "Son",
    "shopName": "Shop",
    "price": "99.50",
    "ratingStar": "4.84",
    "sales": 7,
    "commissionRate": "0.18",
    "sellerCommissionRate": "0.135",
    "shopeeCommissionRate": "0.045",
}


def offers(_path: str, body: str) -> Reply:
    """Answer a call of the Open API: each product has the same short link and the same offer."""
    query = json.loads(body)["query"]
    if item := re.search(r"productOfferV2\(itemId:(\d+)\)", query):
        data: dict[str, Any] = {"productOfferV2": {"nodes": [{"itemId": int(item[1]), **OFFER}]}}
    else:
        data = {"generateShortLink": {"shortLink": SHORT}}
    return Reply(json.dumps({"data": data}))


@pytest.fixture(scope="module")
def thai(running: Running) -> Iterator[Daemon]:
    """A daemon of the Thai market, by that market's own addresses."""
    addresses = {"portal_url": "", "shop_url": "", "short_urls": []}
    with host(offers) as open_api:
        settings = by_open_api(open_api.url) | {"products": {"source": "open_api"}}
        with running(**settings, marketplace={"market": "th", **addresses}) as daemon:
            yield daemon


async def convert(daemon: Daemon, *links: str) -> dict[str, Any]:
    answer = await daemon.convert(*links, account=None)
    assert answer.status_code == 200, answer.text
    mapping: dict[str, Any] = answer.json()["mapping"]
    return mapping


async def test_money_of_another_market_is_in_whole_units_rounded_half_up(thai: Daemon) -> None:
    """13.4325 and 4.4775 are rounded to 13 and 4; their sum would be rounded to 18."""
    link = "https://shopee.co.th/product/111/222"
    product = (await convert(thai, link))[link]["product"]
    parts = ("price", "sellerCommission", "platformCommission", "commission")
    assert [product[part] for part in parts] == [100, 13, 4, 17]
    assert (product["rating"], product["commissionRate"]) == ("4.8", "18%")


async def test_link_with_the_port_of_its_scheme_is_a_link_and_with_another_port_is_none(
    thai: Daemon,
) -> None:
    links = [
        "https://shopee.co.th:443/product/111/223",
        "http://shopee.co.th:80/product/111/223",
        "shopee.co.th:443/product/111/223",
    ]
    others = ["https://shopee.co.th:80/product/111/223", "https://shopee.co.th:8443/product/1/2"]
    mapping = await convert(thai, *links, *others)
    assert [mapping[link]["shortLink"] for link in links] == [SHORT] * 3
    assert [mapping[link] for link in others] == [INVALID] * 2


async def test_link_in_the_query_of_a_look_alike_is_none(thai: Daemon) -> None:
    link = "https://shopee.co.th/product/111/224"
    look_alikes = ["evil-shopee.co.th", "shopee.co.th.example", "shopee.example"]
    links = [f"https://{name}/?u={link}" for name in look_alikes]
    good = f"https://example.org/?u={link}"
    mapping = await convert(thai, *links, good)
    assert [mapping[each] for each in links] == [INVALID] * 3
    assert mapping[good]["shortLink"] == SHORT
