"""A sandbox on ports of its own, and clients with and without a session."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from smartlinkd.sandbox.server import open_sandbox
from smartlinkd.sandbox.session import cookies_of
from smartlinkd.sandbox.state import SandboxState

HOLD = 0.3  # seconds a slow answer takes in these tests
ACCOUNT = "4711"
QUERY = """query batchGetCustomLink($linkParams: [CustomLinkParam!], $sourceCaller: SourceCaller) {
  batchCustomLink(linkParams: $linkParams, sourceCaller: $sourceCaller) {
    shortLink
    longLink
    failCode
  }
}"""


class Portal:
    """A client that does what the portal's page does, for one account."""

    def __init__(
        self, sandbox: SandboxState, client: httpx.AsyncClient, account: str = ACCOUNT
    ) -> None:
        self.sandbox = sandbox
        self.client = client
        self.account = account
        self.cookies = cookies_of(account)

    def product(self, item_id: int, shop_id: int = 7) -> str:
        return f"{self.sandbox.origins.shop}/product/{shop_id}/{item_id}"

    def call(self, *links: str, **sub_ids: str) -> dict[str, Any]:
        return {
            "operationName": "batchGetCustomLink",
            "query": QUERY,
            "variables": {
                "linkParams": [
                    {"originalLink": link, "advancedLinkParams": sub_ids} for link in links
                ],
                "sourceCaller": "CUSTOM_LINK_CALLER",
            },
        }

    async def post(
        self, body: Any, *, q: str = "batchCustomLink", **headers: str | None
    ) -> httpx.Response:
        """Send a submit; a header given as None is left out."""
        own = {"csrf_token": self.cookies["csrftoken"], "affiliate_program_type": "1"} | headers
        return await self.send(
            "POST",
            f"/api/v3/gql?q={q}",
            json=body,
            headers={name.replace("_", "-"): value for name, value in own.items() if value},
        )

    async def rows(self, *links: str, **sub_ids: str) -> Any:
        answer = await self.post(self.call(*links, **sub_ids))
        return answer.json()["data"]["batchCustomLink"]

    async def send(self, method: str, path: str, **more: Any) -> httpx.Response:
        # In the header, because a client would keep cookies of its own for all requests.
        cookie = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        headers = {"cookie": cookie} | more.pop("headers", {})
        return await self.client.request(
            method, self.sandbox.origins.portal + path, headers=headers, **more
        )


@pytest.fixture
async def sandbox() -> AsyncIterator[SandboxState]:
    async with open_sandbox(hold=HOLD) as opened:
        yield opened


@pytest.fixture
async def client(sandbox: SandboxState) -> AsyncIterator[httpx.AsyncClient]:
    # Plain HTTP: no certificates are read, which takes longer than most of these tests.
    async with httpx.AsyncClient(trust_env=False, verify=False, timeout=30) as opened:
        yield opened


@pytest.fixture
async def portal(sandbox: SandboxState, client: httpx.AsyncClient) -> Portal:
    return Portal(sandbox, client)
