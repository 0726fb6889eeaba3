from __future__ import annotations

import httpx
import pytest

from smartlinkd.sandbox.running import Sandbox
from smartlinkd.sandbox.session import cookies_of


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
async def test_every_form_of_a_products_address(
    sandbox: Sandbox, client: httpx.AsyncClient, path: str
) -> None:
    answer = await client.get(sandbox.shop_url + path)

    assert answer.status_code == 200
    assert "Cánh Hồng Official" in answer.text


@pytest.mark.parametrize("path", ["/nonesuch", "/product/x/y", "/product/1", "/i.1"])
async def test_other_addresses_are_not_found(
    sandbox: Sandbox, client: httpx.AsyncClient, path: str
) -> None:
    assert (await client.get(sandbox.shop_url + path)).status_code == 404


async def test_a_name_is_shown_and_not_run(sandbox: Sandbox, client: httpx.AsyncClient) -> None:
    answer = await client.get(f"{sandbox.shop_url}/product/12121212/24680246802")

    assert "&lt;Linear&gt;" in answer.text


async def test_the_login_page_has_a_password_field(
    sandbox: Sandbox, client: httpx.AsyncClient
) -> None:
    answer = await client.get(f"{sandbox.shop_url}/buyer/login")

    assert 'type="password"' in answer.text


async def test_signing_in_makes_the_cookies_of_the_account(
    sandbox: Sandbox, client: httpx.AsyncClient
) -> None:
    next_page = f"{sandbox.portal_url}/offer/product_offer/5"

    answer = await client.post(
        f"{sandbox.shop_url}/buyer/login",
        params={"next": next_page},
        data={"loginKey": "42", "password": "x"},
    )

    assert (answer.status_code, answer.headers["location"]) == (303, next_page)
    assert dict(answer.cookies) == cookies_of("42")
    seen_by_scripts = [c for c in answer.headers.get_list("set-cookie") if "HttpOnly" not in c]
    assert [cookie.partition("=")[0] for cookie in seen_by_scripts] == ["csrftoken"]


async def test_signing_in_leads_nowhere_else(sandbox: Sandbox, client: httpx.AsyncClient) -> None:
    answer = await client.post(
        f"{sandbox.shop_url}/buyer/login",
        params={"next": f"{sandbox.portal_url}.evil.example/"},
        data={"loginKey": "42"},
    )

    assert answer.headers["location"] == f"{sandbox.portal_url}/offer/custom_link"


async def test_an_account_is_a_number(sandbox: Sandbox, client: httpx.AsyncClient) -> None:
    answer = await client.post(f"{sandbox.shop_url}/buyer/login", data={"loginKey": "me"})

    assert answer.status_code == 400
    assert not answer.cookies


@pytest.mark.parametrize("kind", ["captcha", "traffic"])
async def test_the_human_check_is_on_both_hosts(
    sandbox: Sandbox, client: httpx.AsyncClient, kind: str
) -> None:
    for origin in (sandbox.shop_url, sandbox.portal_url):
        assert (await client.get(f"{origin}/verify/{kind}")).status_code == 200
