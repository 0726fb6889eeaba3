"""Origins: what is one, and which hosts it covers."""

from __future__ import annotations

import pytest

from smartlinkd.marketplace.urls import covers, origin


@pytest.mark.parametrize(
    "text",
    [
        *("shop.example", "ftp://shop.example", "https://", "https://[::1"),
        *("https://shop.example/path", "https://shop.example?a=1", "https://shop.example#a"),
        *("https://shop_.example", "https://shop.example.", "https://xn--shope-9ya.vn"),
        *("https://shop.example:port", "https://shop.example:99999", "https://u:p@shop.example"),
    ],
)
def test_text_that_is_no_origin_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        origin(text)


@pytest.mark.parametrize(
    ("url", "host", "port", "expected"),
    [
        ("https://shopee.vn", "shopee.vn", None, True),
        ("https://shopee.vn", "www.shopee.vn", None, True),
        ("https://shopee.vn", "a.b.shopee.vn", None, True),
        ("https://shopee.vn", "evil-shopee.vn", None, False),
        ("https://shopee.vn", "shopee.vn.evil.com", None, False),
        ("https://shopee.vn", "shopee.vn", 443, False),
        ("http://127.0.0.1:9001", "127.0.0.1", 9001, True),
        ("http://127.0.0.1:9001", "127.0.0.1", None, False),
        ("http://127.0.0.1:9001", "127.0.0.1", 9002, False),
        ("http://127.0.0.1:9001", "x.127.0.0.1", 9001, False),
        ("http://localhost:9001", "www.localhost", 9001, True),
    ],
)
def test_covers_the_host_and_its_sub_domains(
    url: str, host: str, port: int | None, expected: bool
) -> None:
    assert covers(url, host, port) is expected
