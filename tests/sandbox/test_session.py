from __future__ import annotations

import pytest

from smartlinkd.sandbox.session import affiliate_id, cookie_header, cookies_of, session_of


def test_the_cookies_of_an_account_sign_it_in() -> None:
    session = session_of(cookies_of("42"))

    assert session is not None
    assert session.account == "42"
    assert session.csrf_token == cookies_of("42")["csrftoken"]


@pytest.mark.parametrize("missing", ["SPC_EC", "SPC_ST", "SPC_U", "csrftoken"])
def test_each_of_the_session_cookies_is_needed(missing: str) -> None:
    cookies = cookies_of("42")
    del cookies[missing]

    assert session_of(cookies) is None


@pytest.mark.parametrize(
    ("name", "value"), [("SPC_EC", "expired"), ("SPC_EC", ""), ("SPC_U", "x"), ("SPC_U", "-1")]
)
def test_cookies_that_make_no_session(name: str, value: str) -> None:
    assert session_of(cookies_of("42") | {name: value}) is None


def test_the_device_cookie_is_not_needed() -> None:
    cookies = cookies_of("42")
    del cookies["SPC_F"]

    assert session_of(cookies) is not None


def test_the_header_is_what_a_browser_would_send() -> None:
    pairs = [pair.partition("=")[::2] for pair in cookie_header("42").split("; ")]

    assert dict(pairs) == cookies_of("42")


def test_every_account_has_an_affiliate_id_of_its_own() -> None:
    assert len({affiliate_id(str(account)) for account in range(1_000)}) == 1_000
