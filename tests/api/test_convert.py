"""Conversions, over HTTP, of links that the sandbox's Open API makes. No browser takes part.

| promised | test |
|---|---|
| seed 2, keyed by the links as submitted | `test_entries_are_keyed_by_the_links_as_sent` |
| seed 2, success and failure entry | `test_a_product_is_converted`, `test_a_link_that_fails_…` |
| seed 4, a failed link does not fail the request | `test_a_link_that_fails_fails_alone` |
| seed 4 and 8, 15 links | `test_fifteen_links_are_taken`, `test_this_order_is_400[16 links]` |
| seed 4 and 8, 5 sub-ids | `test_five_sub_ids_are_taken`, `test_this_order_is_400[6 sub-ids]` |
| contract, links and subIds: 400 with value, place and rule | `test_this_order_is_400[…]` |
| contract, before anything is sent upstream | `test_this_order_is_400[…]` |
| contract, an empty sub-id keeps its position | `test_five_sub_ids_are_taken` |
| contract, the same link twice | `test_the_same_link_twice_is_one` |
| README, not made twice within a day | `test_empty_sub_ids_at_the_end_make_no_other_link` |
| contract, order of the checks | `test_the_first_fault_is_told[…]` |
| contract, a null or empty cookie is an omitted one | `test_no_cookie_is_an_omitted_one[…]` |
| contract, an empty string is no link | `test_this_is_no_link[empty]` |
| contract, every 200 has `ok` true | `test_this_is_no_link[…]` |
| contract, no cookie given and none stored | `test_without_any_cookie_it_is_400[…]` |
| contract, not of this marketplace: 10, nothing sent | `test_this_is_no_link[…]` |
| contract, open_api: no cookie needed, one sent is 400 | `test_with_the_open_api_a_cookie_is_400` |
| contract, open_api: longLink equals shortLink | `test_a_product_is_converted` |
| contract, product not to be had | `test_a_product_without_data_keeps_its_links` |
| seed 7, 502 | `test_the_open_api_refuses[…]`, `test_an_upstream_that_is_not_there_is_502` |
| seed 7, 503; contract: with `Retry-After` | `test_a_browser_that_is_not_ready_is_503` |
| contract, queue full: 503 | `test_a_full_queue_is_503` |
| contract, the deadline passed while queued: 503 | `test_one_that_waits_in_vain_is_503` |
| seed 7, -1, 10, 40300 | `test_a_code_of_the_open_api[…]`, `test_this_is_no_link[…]`; 40300: e2e |
| contract, an upstream that did not answer in time: 502 | `test_an_upstream_that_is_too_slow_…` |
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest
import trio
from httpx import Response
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.patience import patience
from smartlinkd.sandbox.products import PRODUCTS
from smartlinkd.sandbox.server import Sandbox

if TYPE_CHECKING:
    from tests.api.conftest import Daemon, Start

COOKIE = "SPC_U=4711; SPC_EC=.ec-of-4711"
LIPSTICK = PRODUCTS[0]
ROW_UNKNOWN, ROW_INVALID = 900_000_001, 900_000_002
"""Items for which the sandbox's Open API makes no link: an error of its own, wrong parameters."""


@pytest.fixture
async def selling_token(selling: Daemon) -> str:
    return await selling.login()


def product(sandbox: Sandbox, item_id: int, shop_id: int = 7) -> str:
    return f"{sandbox.shop_url}/product/{shop_id}/{item_id}"


def upstream(sandbox: Sandbox) -> int:
    """Calls that reached anybody."""
    return sum(sandbox.state.counters.values())


async def test_a_product_is_converted(
    selling: Daemon, selling_token: str, sandbox: Sandbox
) -> None:
    link = product(sandbox, LIPSTICK.item_id, LIPSTICK.shop_id)
    answer = await selling.convert(selling_token, link)
    assert answer.status_code == 200
    entry = answer.json()["mapping"][link]
    assert answer.json() == {"ok": True, "mapping": {link: entry}}
    assert entry == {
        "shortLink": entry["shortLink"],
        "longLink": entry["shortLink"],
        "failCode": 0,
        "product": None,
    }
    assert entry["shortLink"].startswith(sandbox.short_url + "/")


async def test_product_data_comes_with_it(start: Start, sandbox: Sandbox) -> None:
    daemon = await start(
        marketplace={"shop_url": sandbox.shop_url, "short_urls": [sandbox.short_url]},
        open_api={"url": sandbox.open_api_url},
        products={"source": "open_api"},
    )
    link = product(sandbox, LIPSTICK.item_id, LIPSTICK.shop_id)
    entry = (await daemon.convert(await daemon.login(), link)).json()["mapping"][link]
    assert entry["product"] == {
        "name": LIPSTICK.name,
        "price": 122_200,
        "image": f"https://down-vn.img.susercontent.com/file/{LIPSTICK.image}",
        "shopName": LIPSTICK.shop_name,
        "rating": "4.8",
        "sales": 15_234,
        "commission": 21_996,
        "commissionRate": "18%",
        "sellerCommission": 16_497,
        "platformCommission": 5_499,
        "isXtra": True,
        "cap": 40_000,
        "productLink": link,
    }


async def test_a_product_without_data_keeps_its_links(start: Start, sandbox: Sandbox) -> None:
    daemon = await start(
        marketplace={"shop_url": sandbox.shop_url, "short_urls": [sandbox.short_url]},
        open_api={"url": sandbox.open_api_url},
        products={"source": "open_api"},
    )
    link = product(sandbox, 900_000_201)  # one that the sandbox does not list
    entry = (await daemon.convert(await daemon.login(), link)).json()["mapping"][link]
    assert entry["failCode"] == 0
    assert entry["product"] is None


async def test_entries_are_keyed_by_the_links_as_sent(
    selling: Daemon, selling_token: str, sandbox: Sandbox
) -> None:
    shop = sandbox.shop_url.removeprefix("http://")
    links = [
        f"{sandbox.shop_url}/Son-Kem-Lì-i.88201679.23456789012?sp_atk=x&utm_source=an_1",
        f"{shop}/product/88201679/23456789012",
        f"{sandbox.shop_url}/opaanlp/88201679/23456789012#x",
        f"{sandbox.shop_url}/product/40011223/17788990011",
    ]
    mapping = (await selling.convert(selling_token, *links)).json()["mapping"]
    assert list(mapping) == links
    made = [mapping[link]["shortLink"] for link in links]
    assert len(set(made)) == 2  # two products, and one of them in three spellings
    assert sandbox.state.counters["open api links"] == 2


async def test_a_link_that_fails_fails_alone(
    selling: Daemon, selling_token: str, sandbox: Sandbox
) -> None:
    good, bad, foreign = product(sandbox, 1), product(sandbox, ROW_UNKNOWN), "https://example.org/"
    answer = await selling.convert(selling_token, bad, good, foreign)
    mapping = answer.json()["mapping"]
    assert mapping[good]["failCode"] == 0
    assert mapping[bad] == {"error": True, "failCode": -1}
    assert mapping[foreign] == {"error": True, "failCode": 10}


@pytest.mark.parametrize(("item", "code"), [(ROW_UNKNOWN, -1), (ROW_INVALID, 10)])
async def test_a_code_of_the_open_api(
    selling: Daemon, selling_token: str, sandbox: Sandbox, item: int, code: int
) -> None:
    link = product(sandbox, item)
    answer = await selling.convert(selling_token, link)
    assert answer.status_code == 200
    assert answer.json() == {"ok": True, "mapping": {link: {"error": True, "failCode": code}}}


async def test_fifteen_links_are_taken(
    selling: Daemon, selling_token: str, sandbox: Sandbox
) -> None:
    links = [product(sandbox, item) for item in range(1, 16)]
    mapping = (await selling.convert(selling_token, *links)).json()["mapping"]
    assert [entry["failCode"] for entry in mapping.values()] == [0] * 15
    assert list(mapping) == links


async def test_five_sub_ids_are_taken(
    selling: Daemon, selling_token: str, sandbox: Sandbox
) -> None:
    link = product(sandbox, 1)
    sub_ids = ["a", "", "C3", "x" * 50, ""]
    answer = await selling.convert(selling_token, link, sub_ids=sub_ids)
    code = answer.json()["mapping"][link]["shortLink"].rpartition("/")[2]
    assert f"utm_content=a--C3-{'x' * 50}-" in sandbox.state.made[code]


async def test_the_same_link_twice_is_one(
    selling: Daemon, selling_token: str, sandbox: Sandbox
) -> None:
    link = product(sandbox, 1)
    answer = await selling.convert(selling_token, link, link, link)
    assert list(answer.json()["mapping"]) == [link]
    assert sandbox.state.counters["open api"] == 1


@pytest.mark.parametrize("sub_ids", [None, []], ids=["null", "none"])
async def test_sub_ids_may_be_left_out(
    selling: Daemon, selling_token: str, sandbox: Sandbox, sub_ids: list[str] | None
) -> None:
    body = {"links": [product(sandbox, 1)], "subIds": sub_ids}
    assert (await selling.post("/api/convert", body, token=selling_token)).status_code == 200


async def test_empty_sub_ids_at_the_end_make_no_other_link(
    selling: Daemon, selling_token: str, sandbox: Sandbox
) -> None:
    """As of a form whose fields are all sent, also those that nobody has filled in."""
    link = product(sandbox, 1)
    for count, alike in enumerate([(None, [], ["", ""]), (["a"], ["a", "", "", "", ""])], start=1):
        answers = [await selling.convert(selling_token, link, sub_ids=each) for each in alike]
        assert len({answer.text for answer in answers}) == 1
        assert sandbox.state.counters["open api"] == count


# What is not taken


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({}, "links: is missing"),
        ({"links": None}, "links: must be an array"),
        ({"links": []}, "links: has too few items (at least 1)"),
        ({"links": "https://a"}, "links: must be an array"),
        ({"links": [None]}, "links.0: must be a string"),
        ({"links": ["x", 1]}, "links.1: must be a string"),
        ({"links": ["x"] * 16}, "links: has too many items (at most 15)"),
        ({"subIds": ["a"] * 6}, "subIds: has too many items (at most 5)"),
        ({"subIds": ["a", "b-c"]}, "subIds.1: must be 1 to 50 letters a-z, A-Z and digits"),
        ({"subIds": [" "]}, "subIds.0: must be 1 to 50 letters"),
        ({"subIds": ["é"]}, "subIds.0: must be 1 to 50 letters"),
        ({"subIds": ["\u0661"]}, "subIds.0: must be 1 to 50 letters"),
        ({"subIds": ["x" * 51]}, "subIds.0: must be 1 to 50 letters"),
        ({"subIds": "abc"}, "subIds: must be an array"),
        ({"cookie": 1}, "cookie: must be a string"),
    ],
    ids=[
        "no links",
        "null links",
        "empty links",
        "one link",
        "a null link",
        "a number",
        "16 links",
        "6 sub-ids",
        "a hyphen",
        "a blank",
        "an accent",
        "a digit of another alphabet",
        "51 letters",
        "one sub-id",
        "a cookie that is none",
    ],
)
async def test_this_order_is_400(
    selling: Daemon, selling_token: str, sandbox: Sandbox, body: dict[str, Any], error: str
) -> None:
    whole = body if "links" in error else {"links": [product(sandbox, 1)]} | body
    answer = await selling.post("/api/convert", whole, token=selling_token)
    assert answer.status_code == 400
    assert answer.json()["error"].startswith(error)
    assert upstream(sandbox) == 0


@pytest.mark.parametrize(
    "link",
    [
        "",
        " ",
        "hello",
        "https://example.org/product/1/2",
        "https://evil-shopee.vn/product/1/2",
        "https://shopee.vn/product/1/2",  # the sandbox's addresses are in its place
        "{shop}/",
        "{shop}/cart",
        "{shop}/product/1/0",
        "{shop}/product/1/99999999999999999999",
        "{shop}@example.org/product/1/2",
        "ftp{shop}/product/1/2",
        "javascript:alert(1)",
        "{short}/dlink7Qx",
        "{portal}/product/1/2",
        "x" * 100_000,
    ],
    ids=[
        "empty",
        "blank",
        "a word",
        "another host",
        "a lookalike",
        "the real shop",
        "the front page",
        "another page",
        "item 0",
        "a number too large",
        "a user name",
        "another scheme",
        "script",
        "a login link",
        "the portal",
        "long",
    ],
)
async def test_this_is_no_link(
    selling: Daemon, selling_token: str, sandbox: Sandbox, link: str
) -> None:
    link = (
        link.replace("{shop}", sandbox.shop_url)
        .replace("{short}", sandbox.short_url)
        .replace("{portal}", sandbox.portal_url)
    )
    answer = await selling.convert(selling_token, link)
    assert answer.status_code == 200
    assert answer.json() == {"ok": True, "mapping": {link: {"error": True, "failCode": 10}}}
    assert upstream(sandbox) == 0


@pytest.mark.parametrize(
    ("token", "body", "status", "error"),
    [
        (False, {"links": [1], "cookie": "none"}, 403, "no session token"),
        (True, {"links": [1], "cookie": "none"}, 400, "links.0: must be a string"),
        (True, {"links": ["https://a"], "cookie": "none"}, 400, "cookie: holds no name=value pair"),
        (True, {"links": ["https://a"], "cookie": "SPC_EC=1"}, 200, ""),
    ],
    ids=["token", "body", "cookie", "links"],
)
async def test_the_first_fault_is_told(
    with_browser: Daemon, token: bool, body: dict[str, Any], status: int, error: str
) -> None:
    given = await with_browser.login() if token else ""
    answer = await with_browser.post("/api/convert", body, token=given)
    assert answer.status_code == status
    assert answer.json().get("error", "").startswith(error)


# Cookies


@pytest.fixture
async def with_browser(start: Start) -> Daemon:
    """A daemon that makes links in a browser, which it has not got."""
    return await start(
        links={"source": "browser"},
        browser={"executable": "/nowhere/chromium"},
    )


@pytest.mark.parametrize("given", [{}, {"cookie": None}, {"cookie": ""}], ids=["no", "null", "''"])
async def test_without_any_cookie_it_is_400(
    with_browser: Daemon, given: dict[str, str | None]
) -> None:
    body = {"links": ["https://example.org"]} | given
    answer = await with_browser.post("/api/convert", body, token=await with_browser.login())
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("cookie: none given and none stored")


@pytest.mark.parametrize("given", [{}, {"cookie": None}, {"cookie": ""}], ids=["no", "null", "''"])
async def test_no_cookie_is_an_omitted_one(
    with_browser: Daemon, given: dict[str, str | None]
) -> None:
    await with_browser.post("/api/sync-cookie", {"cookie": COOKIE})
    body = {"links": ["https://example.org"]} | given
    answer = await with_browser.post("/api/convert", body, token=await with_browser.login())
    assert answer.status_code == 200


async def test_a_cookie_that_is_none_is_400_although_one_is_stored(with_browser: Daemon) -> None:
    await with_browser.post("/api/sync-cookie", {"cookie": COOKIE})
    token = await with_browser.login()
    answer = await with_browser.convert(token, "https://example.org", cookie="nothing")
    assert answer.status_code == 400
    assert (await with_browser.get("/api/sync-cookie")).json()["cookie"] == COOKIE


async def test_with_the_open_api_a_cookie_is_400(
    selling: Daemon, selling_token: str, sandbox: Sandbox
) -> None:
    answer = await selling.convert(selling_token, product(sandbox, 1), cookie=COOKIE)
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("cookie: links are made by the Open API here")
    assert upstream(sandbox) == 0


@pytest.mark.parametrize("given", [None, ""])
async def test_with_the_open_api_an_empty_cookie_is_none(
    selling: Daemon, selling_token: str, sandbox: Sandbox, given: str | None
) -> None:
    body = {"links": [product(sandbox, 1)], "cookie": given}
    assert (await selling.post("/api/convert", body, token=selling_token)).status_code == 200


# When others fail


async def test_a_browser_that_is_not_ready_is_503(with_browser: Daemon) -> None:
    token = await with_browser.login()
    link = "https://shopee.vn/product/1/2"
    answer = await with_browser.convert(token, link, "https://example.org", cookie=COOKIE)
    assert answer.status_code == 503
    assert "the browser is down" in answer.json()["error"]
    assert "smartlinkd doctor" in answer.json()["error"]  # there is none at that path
    assert int(answer.headers["Retry-After"]) >= 1


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("open_api_10020", "check the app id and the secret"),
        ("open_api_10035", "check the app id and the secret"),
        ("open_api_10030", "allowance"),
        ("open_api_500", "the Affiliate Open API failed: it gave no answer to read (HTTP 500)"),
    ],
)
async def test_the_open_api_refuses(
    selling: Daemon, selling_token: str, sandbox: Sandbox, fault: str, text: str
) -> None:
    sandbox.state.faults.arm(fault)
    answer = await selling.convert(selling_token, product(sandbox, 1))
    assert answer.status_code == 502
    assert text in answer.json()["error"]
    sandbox.state.faults.clear()
    assert (await selling.convert(selling_token, product(sandbox, 1))).status_code == 200


async def test_what_was_made_is_returned_although_others_were_refused(
    selling: Daemon, selling_token: str, sandbox: Sandbox
) -> None:
    sandbox.state.faults.arm("open_api_10030", times=1)
    links = [product(sandbox, item) for item in (1, 2, 3)]
    mapping = (await selling.convert(selling_token, *links)).json()["mapping"]
    assert sorted(entry["failCode"] for entry in mapping.values()) == [-1, 0, 0]


async def test_an_upstream_that_is_not_there_is_502(daemon: Daemon, token: str) -> None:
    answer = await daemon.convert(token, "https://shopee.vn/product/1/2")
    assert answer.status_code == 502


@pytest.fixture
async def silent() -> AsyncIterator[str]:
    """The address of an Open API that takes calls, and answers none."""
    with trio.socket.socket() as listening:
        await listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/graphql"


async def test_an_upstream_that_is_too_slow_is_502(
    start: Start, silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time is `browser.job_timeout`, however short that for other answers is."""
    daemon = await start(open_api={"url": silent}, browser={"job_timeout": 1})
    token = await daemon.login()

    def short_for_an_answer(seconds: float | None = None) -> patience:
        return patience() if seconds is None else patience(seconds / 100)

    monkeypatch.setattr("smartlinkd.api.operations.patience", short_for_an_answer)
    answer = await daemon.convert(token, "https://shopee.vn/product/1/2")
    assert answer.status_code == 502
    assert "did not answer in time" in answer.json()["error"]


async def test_one_that_waits_in_vain_is_503(
    mock_clock: MockClock, start: Start, silent: str
) -> None:
    """Other sub-ids make another submit, and there is one at a time."""
    daemon = await start(open_api={"url": silent}, browser={"job_timeout": 2})
    token = await daemon.login()
    answers: dict[str, Response] = {}

    async def convert(sub_id: str) -> None:
        link = "https://shopee.vn/product/1/2"
        answers[sub_id] = await daemon.convert(token, link, sub_ids=[sub_id])

    async with trio.open_nursery() as clients:
        # The last one wants what the first one wants, and keeps its submit going that much longer.
        for waiting, sub_id in enumerate(("a", "b", "a"), 1):
            clients.start_soon(convert, sub_id)
            await until(daemon, token, requestsWaiting=waiting)
            mock_clock.jump(0.5)
        for _ in range(3):  # the time of one after the other is over
            await wait_all_tasks_blocked()
            mock_clock.jump(0.5)
    assert answers["a"].status_code == 502
    assert answers["b"].status_code == 503
    assert "still queued" in answers["b"].json()["error"]
    assert int(answers["b"].headers["Retry-After"]) >= 1


async def test_a_full_queue_is_503(start: Start, silent: str) -> None:
    daemon = await start(open_api={"url": silent}, browser={"queue": 1})
    token = await daemon.login()

    async def convert(sub_id: str) -> Response:
        return await daemon.convert(token, "https://shopee.vn/product/1/2", sub_ids=[sub_id])

    async with trio.open_nursery() as clients:
        for waiting, sub_id in enumerate(("a", "b")):
            clients.start_soon(convert, sub_id)
            await until(daemon, token, requestsWaiting=waiting + 1, submitsWaiting=waiting)
        answer = await convert("c")
        clients.cancel_scope.cancel()
    assert answer.status_code == 503
    assert answer.json()["error"].startswith("1 submits are waiting already (browser.queue)")
    assert int(answer.headers["Retry-After"]) >= 1


async def until(daemon: Daemon, token: str, **wanted: int) -> None:
    """Wait for the service to report these numbers."""
    with trio.fail_after(5):
        while True:
            status = (await daemon.get("/api/status", token=token)).json()
            if wanted.items() <= status["conversion"].items():
                return


async def test_a_client_that_leaves_takes_its_conversion_with_it(start: Start, silent: str) -> None:
    daemon = await start(open_api={"url": silent})
    token = await daemon.login()

    async with trio.open_nursery() as clients:
        clients.start_soon(daemon.convert, token, "https://shopee.vn/product/1/2")
        await until(daemon, token, requestsWaiting=1)
        clients.cancel_scope.cancel()
    await until(daemon, token, requestsWaiting=0)
