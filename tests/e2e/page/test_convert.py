"""Conversions in the page: text in, links out, and failures."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest

from smartlinkd.sandbox.products import PRODUCTS

if TYPE_CHECKING:
    from tests.e2e.conftest import Daemon as Converting
    from tests.e2e.conftest import Portal
    from tests.e2e.page.tab import Tab

pytestmark = pytest.mark.chromium

BOX = "Text with product links"
WITHOUT_CLIPBOARD = "Object.defineProperty(navigator, 'clipboard', { value: undefined })"

# Keep the links of each conversion that the page asks for, in `window.asked`.
RECORD_ASKED = """(() => {
    const real = fetch;
    window.asked = [];
    window.fetch = (url, options) => {
        if (/api.convert$/.test(url)) window.asked.push(JSON.parse(options.body).links);
        return real(url, options);
    };
})()"""


async def opened(shop: Tab, converting: Converting, place: str = "convert") -> None:
    await shop.open(place, session=await converting.page_session())
    await shop.see("Convert links")


async def test_message_is_copied_back_with_its_links_replaced_without_a_clipboard_api(
    shop: Tab, converting: Converting, portal: Portal
) -> None:
    """Over plain HTTP from another machine the page has no clipboard API."""
    source = {"source": WITHOUT_CLIPBOARD}
    await shop.session.call("Page.addScriptToEvaluateOnNewDocument", source)
    await opened(shop, converting)
    first, second = portal.link(portal.item()), portal.link(portal.item())
    message = f"Deal 😀 hôm nay:\n1. {first}\n2. ({second}).\nLại link 1: {first}"
    await shop.type(BOX, message)
    await shop.click("button", "Convert")
    await shop.see("2 links converted")
    await shop.click("button", "Copy the text with new links")
    await shop.see("Copied")
    copied = await shop.paste(BOX)
    short = re.findall(rf"{re.escape(portal.origins.short)}/\w+", copied)
    assert len(short) == 3
    assert short[0] == short[2] != short[1]
    assert copied == (f"Deal 😀 hôm nay:\n1. {short[0]}\n2. ({short[1]}).\nLại link 1: {short[0]}")


async def test_card_shows_the_product_and_its_name_stays_text(
    shop: Tab, converting: Converting, portal: Portal
) -> None:
    await opened(shop, converting)
    [product] = [each for each in PRODUCTS if each.item_id == 24_680_246_802]
    await shop.type(BOX, portal.link(product.item_id))
    await shop.click("button", "Convert")
    shown = await shop.see("1 link converted", "Commission", "sold")
    assert product.name.split()[0] in shown
    assert await shop.evaluate("document.querySelectorAll('.card h3 a > *').length") == 0


async def test_five_hundred_lines_are_converted_and_a_reload_loses_nothing(
    shop: Tab, converting: Converting, portal: Portal
) -> None:
    await opened(shop, converting)
    links = [portal.link(portal.item()) for _ in range(500)]
    await shop.type(BOX, "\n".join(f"{place};{link};x" for place, link in enumerate(links)))
    await shop.click("button", "Convert")
    await shop.until("document.querySelector('progress')?.value >= 60")
    await shop.session.call("Page.reload")
    await shop.see("Stopped:", "of 500 links are done.")
    kept = await shop.evaluate("document.querySelector('progress').value")
    assert kept >= 60
    assert await shop.evaluate("document.querySelectorAll('.card').length") == kept
    await shop.click("button", "Go on")
    await shop.see("left")
    await shop.see("500 links converted", patience=120)
    assert await shop.evaluate("document.querySelectorAll('.card').length") == 500


async def test_text_is_converted_instead_of_the_one_that_is_being_converted(
    shop: Tab, converting: Converting, portal: Portal, slow_submits: None
) -> None:
    await opened(shop, converting)
    await shop.type(BOX, "\n".join(portal.link(portal.item()) for _ in range(40)))
    await shop.click("button", "Convert")
    await shop.find("button", "Convert this instead")
    link = portal.link(portal.item())
    await shop.type(BOX, link)
    await shop.click("button", "Convert this instead")
    await shop.see("Leave what is not done?")
    await shop.click_in_dialog("Leave it")
    await shop.see("1 link converted", link)
    assert await shop.evaluate("document.querySelectorAll('.card').length") == 1


async def test_failed_link_says_what_to_do_and_is_retried_alone(
    shop: Tab, converting: Converting, portal: Portal
) -> None:
    await opened(shop, converting)
    await shop.type(BOX, f"{portal.link(portal.item())} {portal.short('gone')}")
    await shop.click("button", "Convert")
    await shop.see(
        "1 link converted · 1 failed",
        "Not a product link, or the link has expired",
        "copy the link again",
    )
    await shop.evaluate(RECORD_ASKED)
    await shop.click("button", f"Try again: {portal.short('gone')}")
    await shop.until("window.asked.length === 1")
    assert await shop.evaluate("window.asked[0]") == [portal.short("gone")]
    await shop.see("1 link converted · 1 failed")


async def test_try_again_in_a_stopped_conversion_converts_that_link_alone(
    shop: Tab, converting: Converting, portal: Portal, slow_submits: None
) -> None:
    await opened(shop, converting)
    gone, links = portal.short("gone"), [portal.link(portal.item()) for _ in range(40)]
    await shop.type(BOX, "\n".join([gone, *links]))
    await shop.click("button", "Convert")
    await shop.until("document.querySelector('progress')?.value >= 15")
    await shop.click("button", "Stop")
    stopped = "Stopped: 15 of 41 links are done."
    await shop.see(stopped)
    await shop.evaluate(RECORD_ASKED)
    await shop.click("button", f"Try again: {gone}")
    await shop.until("window.asked.length > 0")
    await shop.see(stopped)
    assert await shop.evaluate("window.asked") == [[gone]]
    await shop.click("button", "Go on")
    await shop.click("button", f"Try again: {gone}")  # while others are being converted
    await shop.see("40 links converted · 1 failed")
    assert await shop.evaluate("window.asked.flat()") == [gone, *links[14:], gone]


async def test_text_without_links_is_named_and_stays(shop: Tab, converting: Converting) -> None:
    await opened(shop, converting)
    await shop.click("button", "Convert")
    await shop.see("The box is empty.")
    await shop.type(BOX, "không có link")
    await shop.click("button", "Convert")
    await shop.see("No product link was found")
    assert await shop.evaluate("document.querySelector('#text').value") == "không có link"


async def test_wrong_sub_id_is_named_beside_it_and_a_right_one_is_remembered(
    shop: Tab, converting: Converting, portal: Portal
) -> None:
    await opened(shop, converting)
    await shop.type(BOX, portal.link(portal.item()))
    await shop.click("DisclosureTriangle", "Sub-ids")
    await shop.type("Sub-id 1", "face book")
    await shop.see("Use letters a to z and digits only")
    await shop.click("button", "Convert")
    await shop.see("A sub-id is wrong.")
    await shop.type("Sub-id 1", "facebook")
    await shop.type("Sub-id 3", "tet")
    await shop.click("button", "Convert")
    await shop.see("1 link converted")
    await shop.session.call("Page.reload")
    await shop.see("facebook · - · tet")
    await shop.click("DisclosureTriangle", "Sub-ids facebook · - · tet")
    await shop.click("button", "None")
    await shop.until("document.querySelector('.sub-ids input').value === ''")
    await shop.click("button", "facebook · - · tet")
    await shop.until("document.querySelector('.sub-ids input').value === 'facebook'")


async def test_shared_text_survives_a_login_and_leaves_the_address(
    shop: Tab, converting: Converting, portal: Portal
) -> None:
    link = portal.link(portal.item())
    given = {"title": "Son Kem Lì", "text": f"Xem nè {link}", "url": link}
    address = f"{converting.url}/app/?{urlencode(given)}"
    await shop.session.call("Page.navigate", {"url": address})
    await shop.find("textbox", "Password")
    assert await shop.evaluate("location.search") == ""
    await shop.log_in(converting.password)
    await shop.see("Convert links")
    text = await shop.evaluate("document.querySelector('#text').value")
    assert text == f"Son Kem Lì\nXem nè {link}"
    assert not await shop.evaluate(
        "performance.getEntriesByType('resource').some((e) => /api.(convert|extract)/.test(e.name))"
    )
    await shop.click("button", "Convert")
    await shop.see("1 link converted")


async def test_conversion_waits_while_the_network_is_gone(
    shop: Tab, converting: Converting, portal: Portal
) -> None:
    await opened(shop, converting)
    await shop.type(BOX, "\n".join(portal.link(portal.item()) for _ in range(60)))
    await shop.click("button", "Convert")
    await shop.until("document.querySelector('progress')?.value >= 15")
    await shop.be_offline(True)
    await shop.see("The daemon cannot be reached. Trying again…")
    await shop.be_offline(False)
    await shop.see("60 links converted", but_not="Trying again")


async def test_lost_session_at_the_portal_says_what_to_do(
    shop: Tab, converting: Converting, portal: Portal
) -> None:
    account = portal.account()
    await portal.arm("session_lost", account)
    await converting.sync(account)
    await opened(shop, converting)
    await shop.type(BOX, portal.link(portal.item()))
    await shop.click("button", "Convert")
    await shop.see("See what to do")
    assert (502, "/api/convert") in shop.refused
    await shop.click("button", "Go on")
    await shop.see("1 link converted")


async def test_keyboard_alone_converts(shop: Tab, converting: Converting, portal: Portal) -> None:
    await opened(shop, converting)
    while await shop.evaluate("document.activeElement.id") != "text":
        await shop.press_tab()
    await shop.session.call("Input.insertText", {"text": portal.link(portal.item())})
    await shop.press("Enter", ctrl=True)
    await shop.see("1 link converted")
    names = []
    while (name := await shop.press_tab()) != "BODY":
        names.append(name)
        outline = "getComputedStyle(document.activeElement).outlineStyle"
        assert await shop.evaluate(outline) != "none", names
    assert "Copy the text with new links" in names


@pytest.mark.parametrize("language", ["en", "vi"])
async def test_no_view_is_wider_than_a_small_phone(
    shop: Tab, converting: Converting, portal: Portal, language: str
) -> None:
    size = {"width": 360, "height": 640, "deviceScaleFactor": 1, "mobile": True}
    await shop.session.call("Emulation.setDeviceMetricsOverride", size)
    await opened(shop, converting)
    await shop.type(BOX, portal.link(portal.item()) + " " + portal.short("gone"))
    await shop.click("button", "Convert")
    await shop.see("1 failed")
    await shop.choose(".language select", language)
    for place in ("convert", "history", "account", "crews", "system", "security"):
        await shop.go(place)
        await shop.until(f"document.querySelector('nav [aria-current]').hash === '#/{place}'")
        await shop.until(
            "document.querySelector('main h1') && !document.querySelector('main > p.faint')"
        )
        assert await shop.evaluate("document.documentElement.scrollWidth") <= 360, place
    assert await shop.evaluate("document.documentElement.lang") == language
