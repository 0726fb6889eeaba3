from __future__ import annotations

import json
import time
from typing import Any

import httpx
import pytest

from smartlinkd.sandbox.open_api import (
    APP_ID,
    SECRET,
    signature,
)
from smartlinkd.sandbox.server import Sandbox

OFFER = "{productOfferV2(itemId:23456789012){nodes{itemId productName price sellerCommissionRate}}}"


async def ask(
    sandbox: Sandbox,
    client: httpx.AsyncClient,
    query: str,
    *,
    app_id: str = APP_ID,
    secret: str = SECRET,
    age: int = 0,
    said: str | None = None,
) -> dict[str, Any]:
    """One signed call. `said` is sent as the body in place of the one that was signed."""
    body = json.dumps({"query": query})
    timestamp = int(time.time()) - age
    signed = signature(app_id, timestamp, body.encode(), secret)
    answer = await client.post(
        sandbox.open_api_url,
        content=said or body,
        headers={
            "Content-Type": "application/json",
            "Authorization": (
                f"SHA256 Credential={app_id}, Timestamp={timestamp}, Signature={signed}"
            ),
        },
    )
    assert answer.status_code == 200
    result: dict[str, Any] = answer.json()
    return result


def code_of(answer: dict[str, Any]) -> int:
    code: int = answer["errors"][0]["extensions"]["code"]
    assert f"[{code}]" in answer["errors"][0]["message"]
    return code


def mutation(origin: str, sub_ids: list[str]) -> str:
    given = f"originUrl:{json.dumps(origin)},subIds:{json.dumps(sub_ids)}"
    return f"mutation{{generateShortLink(input:{{{given}}}){{shortLink}}}}"


def test_signature_is_the_documented_one() -> None:
    body = rb'{"query":"{\nbrandOffer{\n    nodes{\n        commissionRate\n'
    body += rb'        offerName\n    }\n}\n}"}'

    assert signature("123456", 1577836800, body, "demo") == (
        "dc88d72feea70c80c52c3399751a7d34966763f51a7f056aa070a5e9df645412"
    )


async def test_unlisted_product_has_no_offer(sandbox: Sandbox, client: httpx.AsyncClient) -> None:
    answer = await ask(sandbox, client, "{productOfferV2(itemId:900000210){nodes{itemId}}}")

    assert answer["data"]["productOfferV2"]["nodes"] == []


async def test_short_link_is_made(sandbox: Sandbox, client: httpx.AsyncClient) -> None:
    answer = await ask(
        sandbox, client, mutation(f"{sandbox.shop_url}/product/7/8", ["fb", "", "x"])
    )

    link = answer["data"]["generateShortLink"]["shortLink"]
    location = (await client.get(link)).headers["location"]
    assert link.startswith(f"{sandbox.short_url}/")
    assert "/universal-link/product/7/8?" in location
    assert "utm_content=fb--x--&" in location


@pytest.mark.parametrize(
    ("path", "sub_ids", "code"),
    [
        ("/", [], 11001),
        ("/product/7/8", ["a b"], 11001),
        ("/product/7/8", ["a"] * 6, 11001),
        ("/product/7/900000002", [], 11001),
        ("/product/7/900000001", [], 10000),
    ],
)
async def test_invalid_short_link_is_refused(
    sandbox: Sandbox, client: httpx.AsyncClient, path: str, sub_ids: list[str], code: int
) -> None:
    answer = await ask(sandbox, client, mutation(sandbox.shop_url + path, sub_ids))

    assert code_of(answer) == code


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"secret": "wrong"}, 10020),
        ({"app_id": "1"}, 10020),
        ({"age": 3_600}, 10020),
        ({"said": '{"query":"{productOfferV2(itemId:5){nodes{itemId}}}"}'}, 10020),
        ({"app_id": "18000010030"}, 10030),
        ({"app_id": "18000010035"}, 10035),
    ],
)
async def test_call_without_access_is_refused(
    sandbox: Sandbox, client: httpx.AsyncClient, changes: dict[str, Any], code: int
) -> None:
    assert code_of(await ask(sandbox, client, OFFER, **changes)) == code


async def test_call_without_signature_is_refused(
    sandbox: Sandbox, client: httpx.AsyncClient
) -> None:
    answer = await client.post(sandbox.open_api_url, json={"query": OFFER})

    assert code_of(answer.json()) == 10020


@pytest.mark.parametrize(
    "query", ["{", "{nonesuch{a}}", "{productOfferV2(itemId:5){nodes{nonesuch}}}"]
)
async def test_malformed_query_is_refused(
    sandbox: Sandbox, client: httpx.AsyncClient, query: str
) -> None:
    assert code_of(await ask(sandbox, client, query)) == 10010


# The estimate service


async def ask_estimate(
    sandbox: Sandbox, client: httpx.AsyncClient, item_id: int, cookie: str = ""
) -> httpx.Response:
    url = sandbox.estimate_url.format(shop_id=7, item_id=item_id)
    return await client.get(url, headers={"cookie": cookie} if cookie else {})


@pytest.mark.parametrize("url", ["", "x", "https://shop.example/product/1/2x"])
async def test_estimate_of_nothing_is_not_found(
    sandbox: Sandbox, client: httpx.AsyncClient, url: str
) -> None:
    answer = await client.get(f"{sandbox.portal_url}/estimate", params={"url": url})

    assert answer.status_code == 404


async def test_armed_estimate_fault_is_answered(
    sandbox: Sandbox, client: httpx.AsyncClient
) -> None:
    assert (await ask_estimate(sandbox, client, 900_000_301)).status_code == 500


async def test_cookie_sent_to_the_estimate_is_counted(
    sandbox: Sandbox, client: httpx.AsyncClient
) -> None:
    await ask_estimate(sandbox, client, 5)
    await ask_estimate(sandbox, client, 5, cookie="SPC_U=1")

    counters = sandbox.state.counters
    assert (counters["estimate"], counters["estimate with cookie"]) == (2, 1)
