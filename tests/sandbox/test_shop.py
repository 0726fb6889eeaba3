"""The shop's pages, and what the short links count."""

from __future__ import annotations

import httpx
import pytest

from smartlinkd.sandbox.state import SandboxState


@pytest.mark.parametrize(
    "path",
    [
        "/product/88201679/23456789012",
        "/Son-Kem-L%C3%AC-i.88201679.23456789012?sp_atk=1",
        "/universal-link/product/88201679/23456789012",
        "/universal-link/Son-i.88201679.23456789012",
        "/opaanlp/88201679/23456789012",
        "/canhhong.official/88201679/23456789012",
    ],
)
async def test_each_form_of_a_product_link_shows_the_product(
    sandbox: SandboxState, client: httpx.AsyncClient, path: str
) -> None:
    answer = await client.get(sandbox.origins.shop + path)

    assert answer.status_code == 200
    assert "Cánh Hồng Official" in answer.text


@pytest.mark.parametrize("path", ["/nonesuch", "/product/x/y", "/product/1", "/i.1"])
async def test_other_path_is_not_found(
    sandbox: SandboxState, client: httpx.AsyncClient, path: str
) -> None:
    assert (await client.get(sandbox.origins.shop + path)).status_code == 404


async def test_requests_cookies_and_login_links_are_counted(
    sandbox: SandboxState, client: httpx.AsyncClient
) -> None:
    """Tests of the daemon prove by these counters that it sends no cookie and opens no login."""
    for code in ("direct", "gone", "dlink7Qx"):
        await client.get(f"{sandbox.origins.short}/{code}")
    await client.get(f"{sandbox.origins.short}/moved", headers={"cookie": "SPC_U=1"})

    counted = ["short link", "short link with cookie", "dlink opened"]
    assert [sandbox.counters[what] for what in counted] == [4, 1, 1]
