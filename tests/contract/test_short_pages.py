"""Pages on a short host: which address of a page counts, and which are never followed."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from tests.contract.market import Host, Reply, by_open_api, host, made_by_open_api

if TYPE_CHECKING:
    from tests.contract.conftest import Daemon, Portal, Running

pytestmark = pytest.mark.chromium

INVALID = {"error": True, "failCode": 10}
UNKNOWN = {"error": True, "failCode": -1}

GOES_TO = ("Location", "Refresh", "meta", "script")
IS_ABOUT = ("canonical", "og:url")
WAYS = GOES_TO + IS_ABOUT
"""Ways in which a page names an address, the strongest first."""
LOGIN = '<input type="password">'


def page(ways: dict[str, str], body: str = "") -> Reply:
    """Return a page that names an address in each of these ways, the strongest last."""
    tags = {
        "meta": '<meta http-equiv="refresh" content="0; url={}">',
        "script": "<script>location.href = {};</script>",
        "canonical": '<link rel="canonical" href="{}">',
        "og:url": '<meta property="og:url" content="{}">',
    }
    headers = {way: ways[way] for way in ("Location",) if way in ways}
    if "Refresh" in ways:
        headers["Refresh"] = f"0; url={ways['Refresh']}"
    head = "".join(
        tags[way].format(json.dumps(ways[way]) if way == "script" else html.escape(ways[way]))
        for way in reversed(WAYS)
        if way in ways and way in tags
    )
    status = 302 if "Location" in ways else 200
    return Reply(f"<html><head>{head}</head><body>{body}</body></html>", status, headers)


@dataclass
class Scene:
    """A daemon that knows a short host of the test, and a site that is not the market's."""

    daemon: Daemon
    short: Host
    stranger: Host
    pages: dict[str, Reply]

    async def entry_of(self, reply: Reply) -> Any:
        """Convert a new short link for which the short host sends `reply`."""
        path = f"/Code{len(self.pages)}"
        self.pages[path] = reply
        link = self.short.url + path
        answer = await self.daemon.convert(link, account=None)
        assert answer.status_code == 200, answer.text
        assert path in self.short.asked
        return answer.json()["mapping"][link]


@pytest.fixture(scope="module")
def scene(running: Running, portal: Portal) -> Iterator[Scene]:
    pages: dict[str, Reply] = {}
    with (
        host(lambda path, _: pages.get(path, Reply(status=404))) as short,
        host(lambda _path, _body: Reply("a stranger")) as stranger,
    ):
        settings = by_open_api(portal.origins.portal)
        with running(**settings, marketplace={"short_urls": [short.url]}) as daemon:
            yield Scene(daemon, short, stranger, pages)


@pytest.mark.parametrize("way", WAYS)
async def test_way_counts_more_than_all_that_come_after_it(
    scene: Scene, portal: Portal, way: str
) -> None:
    item, other = portal.item(), portal.item()
    later = WAYS[WAYS.index(way) + 1 :]
    ways = {way: portal.link(item)} | dict.fromkeys(later, portal.link(other))
    assert await scene.entry_of(page(ways)) == made_by_open_api(portal, item)


@pytest.mark.parametrize("way", IS_ABOUT)
async def test_canonical_or_og_url_that_is_no_product_is_not_understood(
    scene: Scene, portal: Portal, way: str
) -> None:
    for target in (f"{portal.origins.shop}/", portal.short("direct"), scene.stranger.url):
        assert await scene.entry_of(page({way: target})) == UNKNOWN
    assert scene.stranger.asked == []


@pytest.mark.parametrize("way", WAYS[1:])
async def test_login_page_is_not_understood_whatever_it_holds(
    scene: Scene, portal: Portal, way: str
) -> None:
    ways = {way: portal.link(portal.item())}
    assert await scene.entry_of(page(ways, LOGIN)) == UNKNOWN


@pytest.mark.parametrize("way", WAYS)
async def test_check_page_is_not_understood_whatever_it_holds(
    scene: Scene, portal: Portal, way: str
) -> None:
    scene.pages["/verify/captcha"] = page({way: portal.link(portal.item())})
    assert await scene.entry_of(page({"Location": "/verify/captcha"})) == UNKNOWN


@pytest.mark.parametrize("way", GOES_TO)
async def test_other_site_is_never_asked_and_a_link_in_its_query_does_not_count(
    scene: Scene, portal: Portal, way: str
) -> None:
    address = scene.stranger.url.replace("127.0.0.1", "localhost")
    link = quote(portal.link(portal.item()), safe="")
    for target in (f"{address}/", f"{address}/?u={link}"):
        assert await scene.entry_of(page({way: target})) == INVALID
    assert scene.stranger.asked == []
