"""The history in the page: search, sums by day, conversion again, download and deletion."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from smartlinkd.conversion.schemas import SuccessEntry
from smartlinkd.history.actor import FILE
from smartlinkd.history.database import HistoryDatabase
from smartlinkd.history.model import HistoryLimits, Record, milliseconds
from smartlinkd.marketplace.products import ProductData

if TYPE_CHECKING:
    from tests.e2e.conftest import Daemon as Converting
    from tests.e2e.conftest import Portal
    from tests.e2e.page.tab import Tab

pytestmark = pytest.mark.chromium

EVIL = "<img src=x onerror=\"document.title='taken'\"> áo thun"
CARDS = "document.querySelectorAll('.card').length"


def keep(state: Path, link: str, *, days_ago: int, name: str) -> None:
    """Add an entry to a running daemon's history."""
    database = HistoryDatabase(state / FILE, HistoryLimits())
    at_ms = milliseconds(datetime.now(UTC) - timedelta(days=days_ago))
    made = SuccessEntry(
        short_link="https://s.shopee.vn/old",
        long_link=link,
        product=ProductData(name=name, commission=12_000),
    )
    database.add(Record(at_ms, "crew:poster", ("fb",), link, made))
    database.close()


async def opened(shop: Tab, converting: Converting, place: str = "history") -> None:
    await shop.open(place, session=await converting.page_session())


async def test_converted_links_are_listed_found_and_deleted(
    shop: Tab, converting: Converting, portal: Portal
) -> None:
    token = await converting.login()
    assert (await converting.ask("DELETE", "/api/history", token=token)).status_code == 200
    await opened(shop, converting)
    await shop.see("No link was converted yet.")
    first, second = portal.link(portal.item()), portal.link(portal.item())
    keep(converting.state, "https://shopee.vn/product/1/2", days_ago=3, name=EVIL)
    answer = await converting.convert(first, second, account=portal.account(), sub_ids=["zalo"])
    assert answer.status_code == 200, answer.text

    await opened(shop, converting, "convert")
    await shop.see("Convert links")
    await shop.go("history")
    shown = await shop.see("3 links, estimated commission", "by the crew poster", "by you", "zalo")
    assert EVIL in shown
    assert await shop.evaluate("document.title") != "taken"
    await shop.until("document.querySelectorAll('.plot canvas').length === 2")

    await shop.go("history?q=AO%20THUN")
    await shop.until(f"{CARDS} === 1")
    await shop.see(EVIL, but_not=first)
    await shop.go("history?q=nothing%20like%20it")
    await shop.see("Nothing matches.")
    await shop.go("history?subId=zalo")
    await shop.see(first, second, but_not=EVIL)
    csv = await shop.evaluate(
        "fetch(document.querySelector('a[download]').href).then((answer) => answer.text())"
    )
    assert first in csv
    assert EVIL not in csv

    await shop.click("button", f"Delete {first} from the history")
    await shop.see(second, but_not=first)
    await shop.click("button", "Delete what was found…")
    await shop.see("Delete everything that was found?")
    await shop.click_in_dialog("Delete")
    await shop.see("Nothing matches.")
    await shop.go("history")
    await shop.see(EVIL)
    await shop.click("button", "Convert again")
    await shop.see("Convert links")
    assert await shop.evaluate("document.querySelector('textarea').value") == (
        "https://shopee.vn/product/1/2"
    )


async def test_older_entries_are_offered_when_all_that_are_shown_were_deleted(
    shop: Tab, converting: Converting
) -> None:
    token = await converting.login()
    assert (await converting.ask("DELETE", "/api/history", token=token)).status_code == 200
    for item in range(51):  # one more than a page
        keep(converting.state, f"https://shopee.vn/product/1/{item}", days_ago=1, name="áo")
    await opened(shop, converting)
    await shop.until(f"{CARDS} === 50")
    buttons = "document.querySelectorAll('[aria-label^=\"Delete https\"]')"
    await shop.evaluate(f"{buttons}.forEach((each) => each.click())")
    await shop.until(f"{CARDS} === 0")
    await shop.click("button", "Show older ones")
    await shop.see("https://shopee.vn/product/1/0")  # kept first
