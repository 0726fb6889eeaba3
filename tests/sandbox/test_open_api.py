from __future__ import annotations

import json
import time
from typing import Any

import httpx
import pytest

from smartlinkd.sandbox.open_api import APP_ID, SECRET, signature
from smartlinkd.sandbox.state import SandboxState

OFFER = "{productOfferV2(itemId:23456789012){nodes{itemId productName price sellerCommissionRate}}}"


async def ask(
    sandbox: SandboxState,
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
        sandbox.origins.open_api,
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
    sandbox: SandboxState, client: httpx.AsyncClient, path: str, sub_ids: list[str], code: int
) -> None:
    answer = await ask(sandbox, client, mutation(sandbox.origins.shop + path, sub_ids))

    assert code_of(answer) == code


@pytest.mark.parametrize(
    "changes",
    [
        {"secret": "wrong"},
        {"app_id": "1"},
        {"age": 3_600},
        {"said": '{"query":"{productOfferV2(itemId:5){nodes{itemId}}}"}'},
    ],
)
async def test_call_that_is_signed_wrongly_is_refused(
    sandbox: SandboxState, client: httpx.AsyncClient, changes: dict[str, Any]
) -> None:
    assert code_of(await ask(sandbox, client, OFFER, **changes)) == 10020


@pytest.mark.parametrize(
    "query", ["{", "{nonesuch{a}}", "{productOfferV2(itemId:5){nodes{nonesuch}}}"]
)
async def test_malformed_query_is_refused(
    sandbox: SandboxState, client: httpx.AsyncClient, query: str
) -> None:
    assert code_of(await ask(sandbox, client, query)) == 10010
