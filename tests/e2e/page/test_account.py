"""The account in the page: its state, and a pasted cookie."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.e2e.conftest import Daemon as Converting
    from tests.e2e.conftest import Portal
    from tests.e2e.page.tab import Tab

pytestmark = pytest.mark.chromium

KEPT = "JSON.stringify([{ ...localStorage }, { ...sessionStorage }])"
TYPED = "document.querySelector('textarea').value"


async def test_pasted_cookie_is_stored_and_forgotten_by_the_page(
    shop: Tab, converting: Converting, portal: Portal
) -> None:
    account = portal.account()
    converting.secrets |= account.secrets
    await shop.open("account", session=await converting.page_session())
    await shop.see("Paste a cookie")
    await shop.type("Cookie", f"Cookie: {account.cookie}")
    await shop.type("Name of the account", "Tiệm Son")
    await shop.click("button", "Store the cookie")
    await shop.see("The cookie is stored.", "Tiệm Son", "The account works.", account.number)
    assert await shop.evaluate(TYPED) == ""
    kept = str(await shop.evaluate(KEPT)) + str(await shop.evaluate("document.body.innerHTML"))
    assert not [secret for secret in account.secrets if secret in kept]


async def test_wrong_cookie_is_named_and_stays_to_be_corrected(
    shop: Tab, converting: Converting
) -> None:
    await shop.open("account", session=await converting.page_session())
    await shop.see("Paste a cookie")
    await shop.click("button", "Store the cookie")
    await shop.see("Paste the cookie first.")
    await shop.type("Cookie", "no cookie at all")
    await shop.click("button", "Store the cookie")
    await shop.see("no name=value pair", but_not="Paste the cookie first.")
    assert await shop.evaluate(TYPED) == "no cookie at all"
    assert (400, "/api/sync-cookie") in shop.refused


async def test_pause_is_shown_everywhere_and_cleared(
    shop: Tab, converting: Converting, portal: Portal
) -> None:
    account, link = portal.account(), portal.link(portal.item())
    await portal.arm("human_check", account)
    await converting.sync(account)
    assert (await converting.convert(link, account=None)).status_code == 502
    await shop.open("convert", session=await converting.page_session())
    await shop.see("The marketplace asks for a human check.")
    await shop.click("link", "See what to do")
    await shop.see("paused", account.number, "do the check there")
    await shop.click("button", "Clear the pause")
    await shop.see("active", but_not="paused")
    await shop.go("convert")
    await shop.type("Text with product links", link)
    await shop.click("button", "Convert")
    await shop.see("1 link converted", but_not="human check")


@pytest.mark.parametrize("language", ["en", "vi"])
async def test_language_follows_the_browser_and_the_choice_is_kept(
    shop: Tab, converting: Converting, language: str
) -> None:
    texts = {"en": "Log in", "vi": "Đăng nhập"}
    other = {"en": "vi", "vi": "en"}[language]
    await shop.session.call("Emulation.setLocaleOverride", {"locale": language})
    languages = json.dumps([f"{language}-XX", "fr"])
    script = f"Object.defineProperty(navigator, 'languages', {{ value: {languages} }})"
    await shop.session.call("Page.addScriptToEvaluateOnNewDocument", {"source": script})
    await shop.open()
    await shop.see(texts[language])
    assert await shop.evaluate("document.documentElement.lang") == language
    await shop.choose(".language select", other)
    await shop.see(texts[other])
    await shop.session.call("Page.reload")
    await shop.see(texts[other])
