"""Pasted links: a link is read as people mean it, and its key in the answer stays as submitted."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from tests.contract.market import Reply, host

if TYPE_CHECKING:
    from tests.contract.conftest import Daemon, Portal

pytestmark = pytest.mark.chromium

INVALID = {"error": True, "failCode": 10}

PASTED = {
    "punctuation": ["{P}.", "{P},", "{P})", "{P}!", "{P};", "{P}…"],
    "wrapped": ["<{P}>", '"{P}"', "({P})", "**{P}**", "{P}||", "[text]({P})", "「{P}」"],
    "invisible": ["\u200b{P}", "{P}\ufeff", "\u200e{P}\u200e", "{P}\u2060", "{P}%20", " {P}\r\n"],
    "share text": [
        "Check out Son on Shopee! {P}",
        "Giá tốt: {P} nhé, xem thêm {shop}/shop123",
        "{P}\n{P}?sp_atk=1",
        "{shop}/m/sale {P}",
    ],
    "browser": [
        "{shop}/Son Kem Lì-i.{ids}",
        "{shop}/Son|Kem-i.{ids}",
        "{shop}/Son\\Kem-i.{ids}",
        "{P}?a=b c|d\\e#f g",
    ],
    "escaped": [
        "{short}/an_redir?affiliate_id=1&amp;origin_link={quoted}",
        "{short}/an_redir?origin_link={twice}",
        "{quoted}",
        "{twice}",
    ],
    "ids in query": ["{shop}/find_similar_products?catid=1&itemid={item}&shopid={of_shop}"],
    "other site": [
        "https://l.facebook.com/l.php?u={quoted}&h=AT0",
        "https://www.google.com/url?q={quoted}",
    ],
    "joined": ["{shop}//product/{of_shop}/{item}", "{P}&utm_source=x"],
}

NO_LINKS = [
    "{P} {shop}/product/1/2",
    "{P} {short}/direct",
    "{short}/direct {short}/moved",
    "{P}.5",
    "{P}x",
    "{shop}/shop123",
    "{shop}/search?keyword=a-i.1.2",
    "{shop}/Son Kem-i.{ids} https://example.com/",
    "{shop}/m/sale?itemid={item}&shopid={of_shop}",
    "https://user@example.com/?u={quoted}",
    "https://127.0.0.1.example/?u={quoted}",
    "https://example.com/{P}",
    "javascript:{P}",
    "ftp://example.com/?u={P}",
    "Không có link nào ở đây.",
    "",
]


@pytest.fixture
def paste(portal: Portal) -> Paste:
    return Paste(portal)


class Paste:
    """A function that formats pasted texts with links to one item."""

    def __init__(self, portal: Portal) -> None:
        self.item = portal.item()
        link = portal.link(self.item)
        self._words = {
            "P": link,
            "shop": portal.origins.shop,
            "short": portal.origins.short,
            "quoted": quote(link, safe=""),
            "twice": quote(quote(link, safe=""), safe=""),
            "item": str(self.item),
            "of_shop": link.rsplit("/", 2)[1],
            "ids": ".".join(link.rsplit("/", 2)[1:]),
        }

    def __call__(self, text: str) -> str:
        return text.format(**self._words)


@pytest.mark.parametrize("kind", PASTED)
async def test_pasted_link_is_converted_under_its_own_key(
    linking: Daemon, portal: Portal, paste: Paste, kind: str
) -> None:
    account = portal.account()
    links = [paste(text) for text in PASTED[kind]]
    answer = await linking.convert(*links, account=account)
    entry = portal.entry(paste.item, account, product=False)
    assert (answer.status_code, answer.json()["mapping"]) == (200, dict.fromkeys(links, entry))
    assert [len(submit["originals"]) for submit in await portal.submits(account)] == [1]


async def test_text_without_one_link_of_the_market_is_invalid(
    linking: Daemon, portal: Portal, paste: Paste
) -> None:
    account = portal.account()
    links = [paste(text) for text in NO_LINKS]
    before = await portal.counted("short link")
    for some in (links[:8], links[8:]):
        answer = await linking.convert(*some, account=account)
        mapping = dict.fromkeys(some, INVALID)
        assert (answer.status_code, answer.json()["mapping"]) == (200, mapping)
    assert await portal.submits(account) == []
    assert await portal.counted("short link") == before


async def test_other_site_with_a_link_in_its_query_is_never_asked(
    linking: Daemon, portal: Portal, paste: Paste
) -> None:
    account = portal.account()
    with host(lambda _path, _body: Reply(status=302, headers={"Location": "/"})) as site:
        address = site.url.replace("127.0.0.1", "localhost")
        link = paste(f"{address}/product/1/2?u={{quoted}}")
        answer = await linking.convert(link, account=account)
    entry = portal.entry(paste.item, account, product=False)
    assert (answer.status_code, answer.json()["mapping"]) == (200, {link: entry})
    assert site.asked == []
