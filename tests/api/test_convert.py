"""Conversions over HTTP, of links that the sandbox's Open API makes. No browser takes part."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import MockClock

from smartlinkd.deadlines import ACTOR_TIMEOUT_S
from smartlinkd.sandbox.products import PRODUCTS
from smartlinkd.sandbox.server import Sandbox
from tests.api.client import answer_in_time

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


async def test_product_data_of_the_open_api_comes_with_the_link(
    start: Start, sandbox: Sandbox
) -> None:
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


async def test_link_that_fails_does_not_fail_the_others(
    selling: Daemon, selling_token: str, sandbox: Sandbox
) -> None:
    items = {1: 0, ROW_UNKNOWN: -1, ROW_INVALID: 10}
    codes = {product(sandbox, item): code for item, code in items.items()}
    codes["https://example.org/"] = 10
    mapping = (await selling.convert(selling_token, *codes)).json()["mapping"]
    assert {link: entry["failCode"] for link, entry in mapping.items()} == codes
    assert mapping[product(sandbox, ROW_UNKNOWN)] == {"error": True, "failCode": -1}


# Cookies


# Upstream that fails


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("open_api_10020", "check the app id and the secret"),
        ("open_api_500", "the Affiliate Open API failed: it gave no answer to read (HTTP 500)"),
    ],
)
async def test_refusal_of_the_open_api_is_502_that_names_it(
    selling: Daemon, selling_token: str, sandbox: Sandbox, fault: str, text: str
) -> None:
    sandbox.state.faults.arm(fault)
    answer = await selling.convert(selling_token, product(sandbox, 1))
    assert answer.status_code == 502
    assert text in answer.json()["error"]
    sandbox.state.faults.clear()
    assert (await selling.convert(selling_token, product(sandbox, 1))).status_code == 200


async def test_links_made_before_a_refusal_are_returned(
    selling: Daemon, selling_token: str, sandbox: Sandbox
) -> None:
    sandbox.state.faults.arm("open_api_10030", times=1)
    links = [product(sandbox, item) for item in (1, 2, 3)]
    mapping = (await selling.convert(selling_token, *links)).json()["mapping"]
    assert sorted(entry["failCode"] for entry in mapping.values()) == [-1, 0, 0]


@pytest.fixture
async def silent() -> AsyncIterator[str]:
    """The address of an Open API that takes calls, and answers none."""
    with trio.socket.socket() as listening:
        await listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/graphql"


async def test_upstream_that_is_too_slow_is_502_after_the_job_timeout(
    start: Start, silent: str, mock_clock: MockClock
) -> None:
    """The time is `browser.job_timeout`, which is longer than that of other answers."""
    timeout_s = int(ACTOR_TIMEOUT_S) + 4
    daemon = await start(open_api={"url": silent}, browser={"job_timeout": timeout_s})
    token = await daemon.login()
    began = trio.current_time()
    converted = partial(daemon.convert, token, "https://shopee.vn/product/1/2")
    answer = await answer_in_time(mock_clock, converted)
    assert trio.current_time() - began >= timeout_s
    assert answer.status_code == 502
    assert "did not answer in time" in answer.json()["error"]


# Short links


async def test_login_link_is_never_opened(
    selling: Daemon, selling_token: str, sandbox: Sandbox
) -> None:
    links = [f"{sandbox.short_url}/{path}" for path in ("dlink7Qx", "DLINK7Qx", "%64link7Qx")]
    mapping = (await selling.convert(selling_token, *links)).json()["mapping"]
    assert [mapping[link]["failCode"] for link in links] == [10, 10, 10]
    assert sandbox.state.counters["short link"] == 0


async def until(daemon: Daemon, token: str, **wanted: int) -> None:
    """Wait for the service to report these numbers."""
    with trio.fail_after(5):
        while True:
            status = (await daemon.get("/api/status", token=token)).json()
            if wanted.items() <= status["conversion"].items():
                return


async def test_conversion_ends_when_its_client_leaves(start: Start, silent: str) -> None:
    daemon = await start(open_api={"url": silent})
    token = await daemon.login()

    async with trio.open_nursery() as clients:
        clients.start_soon(daemon.convert, token, "https://shopee.vn/product/1/2")
        await until(daemon, token, requestsWaiting=1)
        clients.cancel_scope.cancel()
    await until(daemon, token, requestsWaiting=0)
