from __future__ import annotations

import httpx
import pytest

from smartlinkd.sandbox.running import Sandbox


async def ask(
    sandbox: Sandbox, client: httpx.AsyncClient, item_id: int, cookie: str = ""
) -> httpx.Response:
    url = sandbox.estimate_url.format(shop_id=7, item_id=item_id)
    return await client.get(url, headers={"cookie": cookie} if cookie else {})


async def test_an_estimate(sandbox: Sandbox, client: httpx.AsyncClient) -> None:
    answer = (await ask(sandbox, client, 23456789012)).json()

    assert (answer["price"], answer["commission"]) == (122_200, 21_996)


@pytest.mark.parametrize("url", ["", "x", "https://shop.example/product/1/2x"])
async def test_an_estimate_of_nothing(
    sandbox: Sandbox, client: httpx.AsyncClient, url: str
) -> None:
    answer = await client.get(f"{sandbox.portal_url}/estimate", params={"url": url})

    assert answer.status_code == 404


async def test_a_broken_estimate(sandbox: Sandbox, client: httpx.AsyncClient) -> None:
    assert (await ask(sandbox, client, 900_000_301)).status_code == 500


async def test_an_estimate_in_html(sandbox: Sandbox, client: httpx.AsyncClient) -> None:
    answer = await ask(sandbox, client, 900_000_302)

    assert answer.headers["content-type"].startswith("text/html")


async def test_a_cookie_that_comes_along_is_counted(
    sandbox: Sandbox, client: httpx.AsyncClient
) -> None:
    await ask(sandbox, client, 5)
    await ask(sandbox, client, 5, cookie="SPC_U=1")

    counters = sandbox.state.counters
    assert (counters["estimate"], counters["estimate with cookie"]) == (2, 1)
