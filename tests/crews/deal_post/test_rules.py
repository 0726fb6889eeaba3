"""The example crew's rules: what it takes, how it ranks, what a post must hold."""

from __future__ import annotations

from typing import Any

import pytest

from smartlinkd.crews.deal_post.deals import Deal, NoPost, rank, read_inputs, sort_out
from smartlinkd.crews.deal_post.post import fault, fill

LINK = "https://shopee.vn/product/1/11"


def deal(name: str, **product: object) -> Deal:
    return Deal(f"https://s.shopee.vn/{name}", (LINK,), {"name": name, **product})


def success(short: str, product: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"shortLink": short, "longLink": short, "failCode": 0, "product": product}


# What it takes


SHARED = "Check out Son on Shopee! https://s.shopee.vn/abc"


@pytest.mark.parametrize(
    ("given", "links"),
    [
        (["a", "b", "a"], ("a", "b", "a")),
        ("a\nb\n", ("a", "b")),
        ("  a  \r\n\r\n b", ("a", "b")),
        (SHARED, (SHARED,)),
        ([SHARED, "https://shopee.vn/Son Kem-i.1.2"], (SHARED, "https://shopee.vn/Son Kem-i.1.2")),
        (f"Hôm nay có:\n{SHARED}\nshopee.vn/x-i.1.2\nCảm ơn!", (SHARED, "shopee.vn/x-i.1.2")),
        ("https://a.vn/1/2, https://a.vn/3/4", ("https://a.vn/1/2,", "https://a.vn/3/4")),
        ("https://a.vn/1/2,https://a.vn/3/4", ("https://a.vn/1/2", "https://a.vn/3/4")),
        ("https%3A%2F%2Fa.vn%2F1%2F2 a.vn/3/4", ("https%3A%2F%2Fa.vn%2F1%2F2", "a.vn/3/4")),
    ],
)
def test_links_may_be_a_list_or_a_text(given: object, links: tuple[str, ...]) -> None:
    assert read_inputs({"links": given}).links == links


@pytest.mark.parametrize(
    ("given", "sub_ids"),
    [(None, ()), ("", ()), ([], ()), (["a", ""], ("a", "")), ("a, b", ("a", "b"))],
    ids=repr,
)
def test_sub_ids_may_be_a_list_or_a_text_with_commas(
    given: object, sub_ids: tuple[str, ...]
) -> None:
    assert read_inputs({"links": "a", "subIds": given}).sub_ids == sub_ids


@pytest.mark.parametrize(
    ("name", "given"),
    [
        *(("links", given) for given in (None, "", " \n", [], [1], {"a": "b"}, 7)),
        ("links", ["a.vn/1"] * 16),
        ("links", "a.vn/1\n" * 16),
        ("subIds", [1]),
        ("language", "fr"),
        ("language", ["vi"]),
        ("title", 7),
        ("title", "x" * 201),
        ("currency", "đ"),
    ],
)
def test_wrong_input_is_named(name: str, given: object) -> None:
    with pytest.raises(NoPost, match=f"^{name}: "):
        read_inputs({"links": "a", name: given})


# How it ranks


def test_links_to_the_same_product_are_one_deal() -> None:
    mapping = {"a": success("s"), "b": success("t"), "c": success("s", {"name": "it"})}
    deals, failures = sort_out(mapping)
    assert deals == [Deal("s", ("a", "c"), {"name": "it"}), Deal("t", ("b",), {})]
    assert failures == []


def test_deals_are_ranked_by_commission_then_sales_then_as_given() -> None:
    deals = [
        deal("unknown"),
        deal("none", commission=0),
        deal("few", commission=5, sales=1),
        deal("first-of-equals", commission=7, sales=3),
        deal("second-of-equals", commission=7, sales=3),
        deal("many", commission=5, sales=2),
    ]
    assert [each.title for each in rank(deals)] == [
        "first-of-equals",
        "second-of-equals",
        "many",
        "few",
        "none",
        "unknown",
    ]


# What a post holds


@pytest.mark.parametrize("language", ["vi", "en"])
def test_template_fulfils_the_rules_of_a_post(language: str) -> None:
    deals = [deal("a", price=5), deal("ab"), Deal("https://s.shopee.vn/c", (LINK,), {})]
    assert fault(fill(deals, read_inputs({"links": "x", "language": language})), deals) is None


@pytest.mark.parametrize(
    ("post", "why"),
    [
        ("https://s.shopee.vn/a", None),
        ("(https://s.shopee.vn/a).", None),
        ("[mua](https://s.shopee.vn/a)", None),
        ("twice https://s.shopee.vn/a and https://s.shopee.vn/a", None),
        ("nothing", "it lacks the link https://s.shopee.vn/a"),
        ("https://s.shopee.vn/ab", "it lacks the link https://s.shopee.vn/a"),
        ("https://s.shopee.vn/a?to=x", "it lacks the link https://s.shopee.vn/a"),
        ("https://s.shopee.vn/a.html", "it lacks the link https://s.shopee.vn/a"),
        ("https://s.shopee.vn/a+9", "it lacks the link https://s.shopee.vn/a"),
        ("https://s.shopee.vn/a@evil", "it lacks the link https://s.shopee.vn/a"),
        ("evil.example/https://s.shopee.vn/a", "it lacks the link https://s.shopee.vn/a"),
        ("x.vn?https://s.shopee.vn/a", "it lacks the link https://s.shopee.vn/a"),
        ("Mua:https://s.shopee.vn/a!", None),
        ("👉https://s.shopee.vn/a, rẻ.", None),
        ("**https://s.shopee.vn/a**", None),
    ],
)
def test_post_without_all_its_links_is_refused(post: str, why: str | None) -> None:
    assert fault(post, [deal("a")]) == why


@pytest.mark.parametrize(
    "other",
    [
        "http://x.vn",
        "HTTPS://X.VN",
        "www.x.vn",
        "WWW.x.example",
        "bit.ly/abc",
        "t.me/scam",
        "evil.example/login",
        "evil.example:8080",
        "Evil.COM",
        "evil.com.",
        "ｅｖｉｌ．ｃｏｍ",  # noqa: RUF001 - full width
        "ví-dụ.vn",
        "a@b.co",
        "mailto:a@b.example",
        "s.shopee.vn/other",
    ],
)
def test_post_with_another_link_is_refused(other: str) -> None:
    post = f"https://s.shopee.vn/a {other}"
    assert fault(post, [deal("a")]) == "it has a link that is none of the deals'"


@pytest.mark.parametrize(
    "text",
    ["Dr.Martens", "Mr.Bean 2.0", "5.290.000đ/cái", "f/2.8", "Đẹp.Mua ngay", "Co.,Ltd", "1.5kg"],
)
def test_names_and_prices_in_a_post_are_no_links(text: str) -> None:
    assert fault(f"{text} https://s.shopee.vn/a {text}", [deal("a")]) is None
