"""The texts of the browser's errors."""

from __future__ import annotations

import pytest

from smartlinkd.browser.errors import NavigationFailed


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("https://a.example/b/c?token=secret#secret", "https://a.example/b/c could"),
        ("https://user:secret@a.example:8443/b", "https://a.example:8443/b could"),
        ("data:text/html,secret", "that address could"),
        ("secret", "that address could"),
        ("http://[secret", "that address could"),
    ],
)
def test_url_in_an_error_has_no_secret(url: str, said: str) -> None:
    text = str(NavigationFailed(url, "net::ERR_FAILED"))
    assert text.startswith(said)
    assert "secret" not in text
