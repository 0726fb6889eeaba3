"""Links as people paste them: decorated, inside a text, wrapped, or escaped once too often."""

from __future__ import annotations

import re
import time
import timeit
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from urllib.parse import quote, unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smartlinkd.marketplace.links import (
    MAX_TEXT,
    NotALink,
    Product,
    Short,
    find_links,
    parse,
)
from smartlinkd.marketplace.markets import MARKET_CODES, market

VN = market("vn")
ITEM = Product(111, 222)
P = "https://shopee.vn/product/111/222"
CODE = Short("https://s.shopee.vn/AbC_d-1")
S = CODE.url

BEHIND = [".", ",", ")", "!", ";", "…", "...", "?!", "。", "」", "]", "||", "|", "*", "&gt;"]
AROUND = [
    *(("<", ">"), ("(", ")"), ("[", "]"), ("【", "】")),
    *(('"', '"'), ("'", "'"), ("`", "`"), ("“", "”"), ("«", "»")),
    *(("**", "**"), ("_", "_"), ("~~", "~~"), ("||", "||")),
    ("[text](", ")"),
    ("[two words](", ")."),
    ('<a href="', '">Mua</a>'),
    ("👉", "👈"),
    ("Link:", " nhé"),
    ("URL=", ""),
]
INVISIBLE = ["\u200b", "\ufeff", "\u200e", "\u2060", "\u00ad", "\u202a", "\u200b\ufeff"]
PROSE = [
    "Check out Son on Shopee! {}",
    "Hãy xem Son Kem với giá 122.200₫ tại Shopee! {} Mua ngay nhé?",
    "Có gì hay không?\n{}\nCảm ơn.",
    "{} https://shopee.vn/shop123 và https://shopee.vn/m/sale",
    "https://example.com/a-i.1.2 {}",
    "{}\ud83d",
    "\ud83d {}",
]


DECORATIONS = [*AROUND, *(("", sign) for sign in BEHIND), *((sign, sign) for sign in INVISIBLE)]


@pytest.mark.parametrize(("before", "behind"), DECORATIONS)
def test_decoration_around_link_is_cut_off(before: str, behind: str) -> None:
    for link, meaning in ((P, ITEM), (f"{P}?a=1", ITEM), (S, CODE), (f"{S}?lp=aff", CODE)):
        assert parse(f"{before}{link}{behind}", VN) == meaning, link


@pytest.mark.parametrize("tail", ["%20", "%20%20", "%0A", "%E2%80%8B", "/", "/.", "/)"])
def test_escaped_blank_or_slash_behind_link_is_cut_off(tail: str) -> None:
    assert parse(P + tail, VN) == ITEM
    assert parse(S + tail, VN) == CODE


@pytest.mark.parametrize("text", PROSE)
def test_one_link_in_text_is_read(text: str) -> None:
    assert parse(text.format(P), VN) == ITEM
    assert parse(text.format(S), VN) == CODE


@pytest.mark.parametrize("between", [" ", "\n", ",", ", ", "; ", "|", ")("])
def test_two_different_links_in_text_are_none(between: str) -> None:
    for other in ("https://shopee.vn/product/111/223", S):
        assert isinstance(parse(f"{P}{between}{other}", VN), NotALink)
        assert isinstance(parse(f"{other}{between}{P}", VN), NotALink)
    assert parse(f"{P}{between}shopee.vn/x-i.111.222", VN) == ITEM
    assert parse(f"{P}{P}", VN) == ITEM


@pytest.mark.parametrize(
    "link",
    [
        # What browsers accept in a URL
        "https://shopee.vn/Son Kem Lì-i.111.222",
        "https://shopee.vn/Son\u00a0Kem-i.111.222",
        "https://shopee.vn/Son\\Kem-i.111.222",
        "https://shopee.vn/Son|Kem-i.111.222",
        "https://shopee.vn/universal-link/Son Kem-i.111.222?a=b c",
        "Xem không? https://shopee.vn/Son Kem-i.111.222 nhé bạn.",
        "https://shopee.vn/Áo-(2026)-[mới]-i.111.222",
        f"{P}?sp_atk=a b|c\\d",
        f"{P}#a b|c\\d",
        "https:\\\\shopee.vn\\product\\111\\222",
        "https://l.facebook.com/l.php?u=https://shopee.vn/Son Kem-i.111.222",
        "https://shopee.vn:443/product/111/222",
        "http://shopee.vn:80/product/111/222",
        "shopee.vn:443/product/111/222",
        "https:/shopee.vn/product/111/222",
        "https:///shopee.vn/product/111/222",
        "https:shopee.vn/product/111/222",
        # Escaped once too often
        f"https://s.shopee.vn/an_redir?affiliate_id=1&amp;origin_link={quote(P, safe='')}",
        f"https://s.shopee.vn/an_redir?origin_link={quote(quote(P, safe=''), safe='')}",
        f"https://shopee.vn/universal-link?redir={quote(quote(P, safe=''), safe='')}&amp;a=1",
        quote(P, safe=""),
        quote(quote(P, safe=""), safe=""),
        quote(P, safe="").lower(),
        f"Xem {quote(P + '?a=b', safe='')} nhé",
        P.replace("/", "\\/"),
        f'{{"url": "{P.replace("/", chr(92) + "/")}"}}',
        f"{P}?a=1&amp;b=2",
        f"&lt;{P}&gt;",
        # The ids in the query
        "https://shopee.vn/find_similar_products?catid=1&itemid=222&shopid=111",
        "https://shopee.vn/find_similar_products?catid=1&amp;itemid=222&amp;shopid=111",
        "https://shopee.vn/product?shop_id=111&item_id=222",
        "https://shopee.vn/universal-link/product?shopId=111&itemId=222",
        "https://shopee.vn/api/v4/item/get?itemid=222&shopid=111",
        # Badly joined
        "https://shopee.vn//product/111/222",
        "https://shopee.vn/product//111///222",
        f"{P}&utm_source=x",
        f"{P}/&utm_source=x",
        f"{P}&amp;utm_source=x",
        f"https://{P}",
        # Signs that end a link in a text
        'https://shopee.vn/a"b-i.111.222',
        "https://shopee.vn/a<b>`-i.111.222",
    ],
)
def test_link_with_an_odd_spelling_is_read(link: str) -> None:
    assert parse(link, VN) == ITEM


def test_raw_space_beside_another_link_ends_the_link() -> None:
    text = "https://shopee.vn/Son Kem-i.1.2 https://shopee.vn/product/111/222"
    assert parse(text, VN) == ITEM
    assert isinstance(parse("https://shopee.vn/Son Kem-i.1.2 https://example.com/", VN), NotALink)
    assert isinstance(parse("https://shopee.vn/shop 1/2/3", VN), NotALink)


@pytest.mark.parametrize("path", ["", "search", "shop/111", "m/sale", "x/product", "live"])
def test_ids_in_query_of_another_page_do_not_count(path: str) -> None:
    assert isinstance(parse(f"https://shopee.vn/{path}?itemid=222&shopid=111", VN), NotALink)


@pytest.mark.parametrize("ids", ["itemid=222", "itemid=222&shopid=", "itemid=22x&shopid=1"])
def test_ids_in_query_need_both_numbers(ids: str) -> None:
    assert isinstance(parse(f"https://shopee.vn/find_similar_products?{ids}", VN), NotALink)


WRAPPERS = [
    "https://l.facebook.com/l.php?u={}&h=AT0_x",
    "https://www.google.com/url?q={}&sa=D",
    "l.facebook.com/l.php?u={}",
    "https://example.com:8443/?a=1;b=2&to={}#x",
    "https://href.li/?{}",
]


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_link_in_query_of_another_site_is_read(wrapper: str) -> None:
    for link, meaning in ((P, ITEM), (S, CODE), (f"{P}?a=b&c=d", ITEM)):
        wrapped = wrapper.format(quote(link, safe="/:"))
        wrapped = wrapped.replace("?a=b&c", "%3Fa%3Db%26c")
        assert parse(wrapped, VN) == meaning, wrapped
        assert parse(wrapper.format(quote(link, safe="")), VN) == meaning
    twice = wrapper.format(quote(f"https://shopee.vn/universal-link?redir={quote(P)}", safe=""))
    assert parse(twice, VN) == ITEM


@pytest.mark.parametrize(
    "text",
    [
        f"https://user@example.com/?u={P}",
        f"https://evil-shopee.vn/?u={P}",
        f"https://shopee.vn.evil.com/?u={P}",
        f"https://shopee-vn.example/?u={P}",
        f"https://xn--shpee-jsd.vn/?u={P}",
        f"https://fooshp.ee/?u={P}",
        f"https://example.com/{P}",
        f"https://example.com/shopee.vn/product/111/222?x={P}a",
        f"https://example.com/#{P}",
        f"https://example.com/?a={quote(P)}&b={quote('https://shopee.vn/product/1/3')}",
        f"https://example.com/?u={quote('https://evil.com/product/1/2')}",
        f"ftp://example.com/?u={P}",
        f"shopeevn://home?u={P}",
        f"javascript:{P}",
        f"view-source:{P}",
        f"xhttps://{P[8:]}",
        f"git+{P}",
        f"https://shopee.vn/buyer/login?next={quote(P, safe='')}",
        "https://example.com\\@shopee.vn/product/111/222",
        "https://shopee.vn\\@example.com/product/111/222",
        "http://shopee.vn:443/product/111/222",
        "https://shopee.vn:80/product/111/222",
        f"https://a.example/?u=https://b.example/?u=https://c.example/?u={quote(P)}",
    ],
)
def test_link_that_is_not_the_markets_own_is_none(text: str) -> None:
    assert isinstance(parse(text, VN), NotALink)


@pytest.mark.parametrize(
    "tail", ["x", ".5", ",333", "-4", "_4", ")5", "\u200b5", "%31", "%2C5", "và", "/reviews"]
)
def test_id_whose_end_is_not_clear_is_none(tail: str) -> None:
    assert isinstance(parse(P + tail, VN), NotALink)


def test_half_character_in_link_is_none_and_around_it_does_not_count() -> None:
    assert isinstance(parse("https://shopee.vn/x-\ud83d-i.111.222", VN), NotALink)
    assert isinstance(parse(f"{P}?a=\ud83db", VN), NotALink)
    assert parse(f"Xem \ud83d {P}\ud83d", VN) == ITEM


def test_text_over_its_bound_is_none() -> None:
    assert parse(f"{'a ' * (MAX_TEXT // 2 - 20)}{P}", VN) == ITEM
    assert isinstance(parse(f"{'a ' * (MAX_TEXT // 2)}{P}", VN), NotALink)


@pytest.mark.parametrize(
    "text_of",
    [
        lambda length: "." * length,
        lambda length: "-" * length,
        lambda length: "+" * length,
        lambda length: "a" * (length // 2) + "/https://" * (length // 18),
        lambda length: f"{S} " * (length // len(S)),
    ],
    ids=["dots", "hyphens", "plus signs", "starts behind a name", "links"],
)
def test_time_to_find_links_is_linear(text_of: Callable[[int], str]) -> None:
    def seconds(length: int) -> float:
        work = partial(find_links, text_of(length), VN)
        return min(timeit.repeat(work, timer=time.thread_time, number=1, repeat=3))

    short, long = seconds(MAX_TEXT // 32), seconds(MAX_TEXT // 2)
    assert long < 64 * short  # linear is 16 times, quadratic 256 times


def test_found_links_have_their_places() -> None:
    text = f"Xem ({P}?a=1). Và {S}; <https://shopee.vn/x-i.1.2>, [t](shopee.vn/product/3/4)!"
    found = find_links(text, VN)
    assert [text[link.start : link.end] for link in found] == [
        f"{P}?a=1",
        S,
        "https://shopee.vn/x-i.1.2",
        "shopee.vn/product/3/4",
    ]
    assert [link.reading for link in found] == [ITEM, CODE, Product(1, 2), Product(3, 4)]


# Whatever is put around a link of any form

STARTS = ["https://", "http://", "HTTPS://", "https://www.", ""]
FORMS = [
    *(f"/product/111/222{tail}" for tail in ("", "/", "?sp_atk=a&utm_source=an_1", "#x", "&a=x")),
    "/opaanlp/111/222",
    "/universal-link/product/111/222",
    "/Áo-(2026)_[mới].商品~+,:;@&=!'%C6%A1|-i.111.222",
    "/universal-link/0-i.1.2-i.111.222",
    "//product/111/222",
    "/find_similar_products?catid=1&itemid=222&shopid=111",
]
LOOK_ALIKES = [
    *("evil-shopee.vn", "shopee.vn.evil.com", "s.shopee.vn.evil.com", "shp.ee.evil.com"),
    *("shopee.co.uk", "sh\u043epee.vn", "xn--shpee-jsd.vn", "shopee.vn:8443"),
    *("shopee.vn@evil.com", "user@shopee.vn", "shopee.vn\\@evil.com", "evil.com\\@shopee.vn"),
    *("evil.com/shopee.vn", "evil.com#shopee.vn", "evil.com/https://shopee.vn"),
]


def pasted(link: str) -> Iterator[str]:
    """Yield texts with the link decorated, escaped, or behind another site's redirect."""
    whole = link if "://" in link else f"https://{link}"
    forms = [link, link.replace("&", "&amp;"), quote(whole, safe="")]
    forms += [site.format(quote(whole, safe="")) for site in WRAPPERS if "://" in site]
    for form, (before, behind) in product(forms, DECORATIONS):
        if before != "_" or "://" in form:  # _shopee.vn is a name of its own
            yield f"Xem 🔥 (122.200₫): {before}{form}{behind} Mua ngay nhé?"


@pytest.mark.parametrize("code", MARKET_CODES)
def test_decorated_link_of_each_form_and_market_is_read(code: str) -> None:
    place = market(code)
    host = place.shop_url.removeprefix("https://")
    for start, form in product(STARTS, FORMS):
        for text in pasted(f"{start}{host}{form}"):
            assert parse(text, place) == ITEM, text
            assert [found.reading for found in find_links(text, place)] == [ITEM], text


@pytest.mark.parametrize("host", LOOK_ALIKES)
def test_decorated_link_of_another_host_is_none(host: str) -> None:
    for text in pasted(f"https://{host}/product/111/222"):
        assert isinstance(parse(text, VN), NotALink), text
        assert find_links(text, VN) == [], text


HOST = re.compile(r"(?<![\w.-])(?:[\w-]+\.)*shopee\.vn(?::[0-9]+)?[/\\]", re.IGNORECASE)


@settings(max_examples=5_000, database=None)
@given(
    st.lists(
        st.sampled_from(
            [
                *"shopee.vn/\\:@?#&=%.-_~()<>\"' \n",
                *("https://", "shopee.vn", "evil.com", "s.shopee.vn", "/product/1/2", "-i.1.2"),
                *("%2F", "%3A", "&amp;", "?u=", "\ud83d", "\u200b", "xn--"),
            ]
        ),
        max_size=20,
    ).map("".join)
)
def test_found_link_has_a_host_of_the_market_in_it(text: str) -> None:
    parse(text, VN)
    for found in find_links(text, VN):
        link = text[found.start : found.end]
        assert HOST.search(unquote(link)), link
        assert parse(link, VN) == found.reading, link
