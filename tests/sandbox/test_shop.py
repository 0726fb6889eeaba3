from __future__ import annotations

import httpx
import pytest
import trio

from smartlinkd.sandbox.server import Sandbox
from smartlinkd.sandbox.session import cookies_of
from smartlinkd.sandbox.shortlinks import BIG_BODY


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
    sandbox: Sandbox, client: httpx.AsyncClient, path: str
) -> None:
    answer = await client.get(sandbox.shop_url + path)

    assert answer.status_code == 200
    assert "Cánh Hồng Official" in answer.text


@pytest.mark.parametrize("path", ["/nonesuch", "/product/x/y", "/product/1", "/i.1"])
async def test_other_path_is_not_found(
    sandbox: Sandbox, client: httpx.AsyncClient, path: str
) -> None:
    assert (await client.get(sandbox.shop_url + path)).status_code == 404


async def test_name_of_a_product_is_escaped(sandbox: Sandbox, client: httpx.AsyncClient) -> None:
    answer = await client.get(f"{sandbox.shop_url}/product/12121212/24680246802")

    assert "&lt;Linear&gt;" in answer.text


async def test_sign_in_sets_the_cookies_of_the_account(
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


async def test_sign_in_redirects_to_no_other_site(
    sandbox: Sandbox, client: httpx.AsyncClient
) -> None:
    answer = await client.post(
        f"{sandbox.shop_url}/buyer/login",
        params={"next": f"{sandbox.portal_url}.evil.example/"},
        data={"loginKey": "42"},
    )

    assert answer.headers["location"] == f"{sandbox.portal_url}/offer/custom_link"


async def test_sign_in_of_no_number_is_refused(sandbox: Sandbox, client: httpx.AsyncClient) -> None:
    answer = await client.post(f"{sandbox.shop_url}/buyer/login", data={"loginKey": "me"})

    assert answer.status_code == 400
    assert not answer.cookies


@pytest.mark.parametrize("kind", ["captcha", "traffic"])
async def test_human_check_is_on_shop_and_portal(
    sandbox: Sandbox, client: httpx.AsyncClient, kind: str
) -> None:
    for origin in (sandbox.shop_url, sandbox.portal_url):
        assert (await client.get(f"{origin}/verify/{kind}")).status_code == 200


# Short links


@pytest.mark.parametrize(
    ("code", "status", "location"),
    [
        ("direct", 302, "{shop}/universal-link/product/88201679/23456789012"),
        ("moved", 301, "{shop}/product/40011223/17788990011"),
        ("relative", 302, "/direct"),
        ("check", 302, "/verify/captcha"),
        ("chain3", 302, "{short}/chain2"),
        ("foreign", 302, "http://foreign.example/"),
        ("p7i8", 302, "{shop}/opaanlp/7/8"),
    ],
)
async def test_redirect_code_redirects(
    sandbox: Sandbox, client: httpx.AsyncClient, code: str, status: int, location: str
) -> None:
    answer = await client.get(f"{sandbox.short_url}/{code}")

    assert answer.status_code == status
    expected = location.format(shop=sandbox.shop_url, short=sandbox.short_url)
    assert answer.headers["location"].startswith(expected)


async def test_redirect_code_without_location_has_none(
    sandbox: Sandbox, client: httpx.AsyncClient
) -> None:
    answer = await client.get(f"{sandbox.short_url}/nowhere")

    assert answer.status_code == 302
    assert "location" not in answer.headers


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("meta", 'http-equiv="refresh" content="0; url={shop}/Hang-tot-i.55104422.21334455667?'),
        ("meta", "?utm_source=an_17000000001&amp;utm_medium=affiliates&amp;"),
        ("script", 'location.replace("{shop}/universal-link/Hang-tot-i.61002345.19876543210?'),
        ("variable", 'var u = "{shop}/opaanlp/83004567/22001100220?'),
        ("variable", "; location.href = u;"),
        ("canonical", '<link rel="canonical" href="{shop}/Hang-tot-i.90112233.25550001112">'),
        ("ogurl", '<meta property="og:url" content="{shop}/product/33445566/20202020202">'),
        ("signin", '<input type="password">'),
        ("signin", '<link rel="canonical" href="{shop}/product/88201679/23456789012">'),
    ],
)
async def test_page_code_goes_on(
    sandbox: Sandbox, client: httpx.AsyncClient, code: str, text: str
) -> None:
    answer = await client.get(f"{sandbox.short_url}/{code}")

    assert answer.status_code == 200
    assert text.format(shop=sandbox.shop_url) in answer.text


async def test_refresh_code_answers_with_a_refresh_header(
    sandbox: Sandbox, client: httpx.AsyncClient
) -> None:
    answer = await client.get(f"{sandbox.short_url}/refresh")

    assert answer.status_code == 200
    product = f"{sandbox.shop_url}/product/72345001/18123456789"
    assert answer.headers["refresh"].startswith(f"0; url={product}?")


@pytest.mark.parametrize(("code", "status"), [("gone", 404), ("broken", 500), ("dlinkXy", 404)])
async def test_dead_code_is_not_found(
    sandbox: Sandbox, client: httpx.AsyncClient, code: str, status: int
) -> None:
    assert (await client.get(f"{sandbox.short_url}/{code}")).status_code == status


async def test_slow_code_answers_after_the_hold(
    sandbox: Sandbox, client: httpx.AsyncClient
) -> None:
    begin = trio.current_time()

    await client.get(f"{sandbox.short_url}/slow")

    assert trio.current_time() - begin >= sandbox.state.hold


async def test_big_code_answers_with_a_big_page(
    sandbox: Sandbox, client: httpx.AsyncClient
) -> None:
    answer = await client.get(f"{sandbox.short_url}/big")

    assert len(answer.content) > BIG_BODY


async def test_requests_cookies_and_login_links_are_counted(
    sandbox: Sandbox, client: httpx.AsyncClient
) -> None:
    for code in ("direct", "direct", "gone", "dlink7Qx"):
        await client.get(f"{sandbox.short_url}/{code}")
    await client.get(f"{sandbox.short_url}/moved", headers={"cookie": "SPC_U=1"})

    counted = ["", " direct", " gone", " with cookie"]
    counters = sandbox.state.counters
    assert [counters[f"short link{code}"] for code in counted] == [5, 2, 1, 1]
    assert counters["dlink opened"] == 1
