"""The shop's pages, and what the short links count."""

from __future__ import annotations

import httpx
import pytest

from smartlinkd.sandbox.state import SandboxState


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/product/88201679/23456789012", 200),
        ("/Son-Kem-L%C3%AC-i.88201679.23456789012?sp_atk=1", 200),
        ("/product/x/y", 404),
        ("/i.1", 404),
    ],
)
async def test_link_of_a_product_shows_it(
    sandbox: SandboxState, client: httpx.AsyncClient, path: str, status: int
) -> None:
    answer = await client.get(sandbox.origins.shop + path)

    assert answer.status_code == status
    assert ("Cánh Hồng Official" in answer.text) == (status == 200)


async def test_requests_cookies_and_login_links_are_counted(
    sandbox: SandboxState, client: httpx.AsyncClient
) -> None:
    """Tests of the daemon prove by these counters that it sends no cookie and opens no login."""
    for code in ("direct", "gone", "dlink7Qx"):
        await client.get(f"{sandbox.origins.short}/{code}")
    await client.get(f"{sandbox.origins.short}/moved", headers={"cookie": "SPC_U=1"})

    counted = ["short link", "short link with cookie", "dlink opened"]
    assert [sandbox.counters[what] for what in counted] == [4, 1, 1]
