"""`/api/convert`: which requests it accepts, the order of its checks, and its answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.market import SECRET, by_open_api, made_by_open_api, upstream_calls

if TYPE_CHECKING:
    from tests.contract.conftest import Daemon, Portal, Running

pytestmark = pytest.mark.chromium

INVALID = {"error": True, "failCode": 10}
NO_COOKIES: list[dict[str, str | None]] = [{}, {"cookie": None}, {"cookie": ""}]


@pytest.fixture(scope="module")
def selling(running: Running, portal: Portal) -> Iterator[Daemon]:
    """A daemon that makes links by the Open API."""
    with running(**by_open_api(portal.origins.portal)) as daemon:
        daemon.secrets.add(SECRET)
        yield daemon


@pytest.fixture(scope="module")
def without_browser(running: Running, shared_open_folder: Path) -> Iterator[Daemon]:
    """A daemon that makes links with a browser whose Chromium is missing."""
    with running(browser={"executable": str(shared_open_folder / "missing")}) as daemon:
        yield daemon


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"links": ...}, "links: is missing"),
        ({"links": None}, "links: must be an array"),
        ({"links": []}, "links: has too few items (at least 1)"),
        ({"links": "https://a"}, "links: must be an array"),
        ({"links": ["x", 1]}, "links.1: must be a string"),
        ({"links": ["x"] * 16}, "links: has too many items (at most 15)"),
        ({"subIds": ["a"] * 6}, "subIds: has too many items (at most 5)"),
        ({"subIds": ["a", "b-c"]}, "subIds.1: must be 1 to 50 letters a-z, A-Z and digits"),
        ({"subIds": [" "]}, "subIds.0: must be 1 to 50 letters"),
        ({"subIds": ["\u0661"]}, "subIds.0: must be 1 to 50 letters"),
        ({"subIds": ["x" * 51]}, "subIds.0: must be 1 to 50 letters"),
    ],
    ids=["missing", "null", "empty", "text", "number", "16 links", "6 sub-ids", "hyphen", "blank",
         "foreign digit", "51 letters"],
)  # fmt: skip
async def test_wrong_links_or_sub_ids_are_400_before_anything_is_sent(
    selling: Daemon, portal: Portal, body: dict[str, Any], error: str
) -> None:
    good = {"links": [portal.link(portal.item()), portal.short("direct")]}
    sent = {name: value for name, value in (good | body).items() if value is not ...}
    before = await upstream_calls(portal)
    answer = await selling.ask("POST", "/api/convert", sent, token=await selling.login())
    assert (answer.status_code, answer.json()["ok"]) == (400, False)
    assert answer.json()["error"].startswith(error)
    assert await upstream_calls(portal) == before


async def test_fifteen_links_and_five_sub_ids_are_taken_and_empty_sub_id_keeps_its_place(
    selling: Daemon, portal: Portal
) -> None:
    items = {portal.link(item): item for item in (portal.item() for _ in range(15))}
    sub_ids = ["a", "", "C3", "x" * 50, "5"]
    answer = await selling.convert(*items, account=None, sub_ids=sub_ids)
    assert answer.json() == {
        "ok": True,
        "mapping": {link: made_by_open_api(portal, item, *sub_ids) for link, item in items.items()},
    }
    assert list(answer.json()["mapping"]) == list(items)


async def test_same_link_twice_is_one_key_and_is_converted_once(
    selling: Daemon, portal: Portal
) -> None:
    item = portal.item()
    link, before = portal.link(item), await portal.counted("open api links")
    answer = await selling.convert(link, link, account=None)
    assert answer.json() == {"ok": True, "mapping": {link: made_by_open_api(portal, item)}}
    assert await portal.counted("open api links") == before + 1


@pytest.mark.parametrize(
    ("has_token", "body", "status", "error"),
    [
        (False, {"links": [1], "cookie": "none"}, 403, "no session token"),
        (True, {"links": [1], "cookie": "none"}, 400, "links.0: "),
        (True, {"links": ["https://a"], "cookie": "none"}, 400, "cookie: holds no name=value pair"),
    ],
    ids=["token", "body", "cookie"],
)
async def test_first_of_several_faults_is_told(
    without_browser: Daemon, has_token: bool, body: dict[str, Any], status: int, error: str
) -> None:
    token = await without_browser.login() if has_token else ""
    answer = await without_browser.ask("POST", "/api/convert", body, token=token)
    assert (answer.status_code, answer.json()["ok"]) == (status, False)
    assert answer.json()["error"].startswith(error)


async def test_request_whose_links_all_fail_is_200_and_ok(without_browser: Daemon) -> None:
    token = await without_browser.login()
    body = {"links": ["https://a.example/", ""], "cookie": "SPC_EC=.x"}
    answer = await without_browser.ask("POST", "/api/convert", body, token=token)
    mapping = {"https://a.example/": INVALID, "": INVALID}
    assert (answer.status_code, answer.json()) == (200, {"ok": True, "mapping": mapping})


async def test_null_or_empty_cookie_is_an_omitted_one_and_with_none_stored_it_is_400(
    without_browser: Daemon, portal: Portal
) -> None:
    token = await without_browser.login()
    bodies = [{"links": ["https://a.example/"]} | given for given in NO_COOKIES]
    for body in bodies:
        answer = await without_browser.ask("POST", "/api/convert", body, token=token)
        assert answer.status_code == 400
        assert answer.json()["error"].startswith("cookie: none given and none stored")
    await without_browser.sync(portal.account())
    for body in bodies:
        answer = await without_browser.ask("POST", "/api/convert", body, token=token)
        assert answer.json() == {"ok": True, "mapping": {"https://a.example/": INVALID}}


# links.source = "open_api"


@pytest.mark.parametrize("given", NO_COOKIES)
async def test_open_api_needs_no_cookie_and_its_long_link_is_the_short_one(
    selling: Daemon, portal: Portal, given: dict[str, str | None]
) -> None:
    item = portal.item()
    body = {"links": [portal.link(item)]} | given
    answer = await selling.ask("POST", "/api/convert", body, token=await selling.login())
    entry = answer.json()["mapping"][portal.link(item)]
    assert entry == made_by_open_api(portal, item)
    assert entry["longLink"] == entry["shortLink"]


async def test_open_api_with_a_cookie_in_the_request_is_400(
    selling: Daemon, portal: Portal
) -> None:
    before = await upstream_calls(portal)
    answer = await selling.convert(portal.link(portal.item()), account=portal.account())
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("cookie: ")
    assert await upstream_calls(portal) == before
