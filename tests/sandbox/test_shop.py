"""The shop's pages, its login, and what the short links count."""

from __future__ import annotations

import httpx
import pytest

from smartlinkd.sandbox.session import cookies_of
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


async def test_sign_in_sets_the_cookies_of_the_account(
    sandbox: SandboxState, client: httpx.AsyncClient
) -> None:
    answer = await client.post(
        f"{sandbox.origins.shop}/buyer/login", data={"loginKey": "42", "password": "x"}
    )

    page = f"{sandbox.origins.portal}/offer/custom_link"
    assert (answer.status_code, answer.headers["location"]) == (303, page)
    assert dict(answer.cookies) == cookies_of("42")
    seen_by_scripts = [c for c in answer.headers.get_list("set-cookie") if "HttpOnly" not in c]
    assert [cookie.partition("=")[0] for cookie in seen_by_scripts] == ["csrftoken"]


async def test_sign_in_of_no_number_is_refused(
    sandbox: SandboxState, client: httpx.AsyncClient
) -> None:
    answer = await client.post(f"{sandbox.origins.shop}/buyer/login", data={"loginKey": "me"})

    assert answer.status_code == 400
    assert not answer.cookies


async def test_requests_cookies_and_login_links_are_counted(
    sandbox: SandboxState, client: httpx.AsyncClient
) -> None:
    """Tests of the daemon prove by these counters that it sends no cookie and opens no login."""
    for code in ("direct", "gone", "dlink7Qx"):
        await client.get(f"{sandbox.origins.short}/{code}")
    await client.get(f"{sandbox.origins.short}/moved", headers={"cookie": "SPC_U=1"})

    counted = ["short link", "short link with cookie", "dlink opened"]
    assert [sandbox.counters[what] for what in counted] == [4, 1, 1]
