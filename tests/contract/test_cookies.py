"""Pasted cookies: each form works, and a refused cookie does not replace the stored one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.contract.market import Reply, by_open_api, host

if TYPE_CHECKING:
    from tests.e2e.conftest import Account, Daemon, Portal, Running

pytestmark = pytest.mark.chromium

PATHS = ("/api/sync-cookie", "/api/sync-cookie-local")
BANK = "hunter2-of-a-bank"
LATER = 4_000_000_000
LOCAL_HOSTS = {"portal_url": "portal.shop.localhost", "shop_url": "shop.localhost"}


def pairs(cookie: str) -> list[tuple[str, str]]:
    found = (pair.partition("=") for pair in cookie.split("; "))
    return [(name, value) for name, _, value in found]


def entries(cookie: str, host: str) -> list[dict[str, Any]]:
    """Return a browser extension's export of all cookies of a browser."""
    more = {"path": "/", "secure": True, "expirationDate": LATER + 0.5}
    own = [{"name": name, "value": value, "domain": host} | more for name, value in pairs(cookie)]
    bank = {"name": "session", "value": BANK, "domain": ".bank.example"} | more
    old = {"name": "SPC_OLD", "value": "x", "domain": host} | more | {"expirationDate": 1.5}
    return [bank, *own, old]


def cookies_txt(cookie: str, host: str) -> str:
    lines = [f"#HttpOnly_.bank.example\tTRUE\t/\tTRUE\t{LATER}\tsession\t{BANK}"]
    lines += [
        f"#HttpOnly_{host}\tFALSE\t/\tTRUE\t{LATER}\t{name}\t{value}"
        for name, value in pairs(cookie)
    ]
    return "\r\n".join(["# Netscape HTTP Cookie File", "", *lines, ""])


def cmd(cookie: str) -> str:
    escaped = "".join(c if c.isalnum() or c in " _-:=;./" else f"^{c}" for c in cookie)
    return f'curl ^"https://affiliate.shopee.vn/^" ^\r\n  -H ^"cookie: {escaped}^" ^\r\n  -k'


FORMS: dict[str, Callable[[str], str]] = {
    "header": lambda cookie: cookie,
    "named": lambda cookie: f"\ufeff  COOKIE : {cookie}\r\n\u200b",
    "quoted": lambda cookie: f"\u201c{cookie}\u201d",
    "curl": lambda cookie: f"curl 'https://shopee.vn/' \\\n  -b '{cookie}' \\\n  --compressed",
    "curl with escapes": lambda cookie: f"curl 'https://shopee.vn/' -H $'cookie: {cookie}'",
    "curl of cmd": cmd,
    "extension": lambda cookie: json.dumps(entries(cookie, "127.0.0.1"), indent=2),
    "standard hosts": lambda cookie: json.dumps(entries(cookie, ".shopee.vn")),
    "storage state": lambda cookie: json.dumps(
        {"cookies": entries(cookie, "affiliate.shopee.vn"), "origins": []}
    ),
    "cookies.txt": lambda cookie: cookies_txt(cookie, "127.0.0.1"),
    "pasted cookies.txt": lambda cookie: cookies_txt(cookie, ".shopee.vn").replace("\t", "  "),
}


async def stored(daemon: Daemon) -> str:
    return str((await daemon.ask("GET", "/api/sync-cookie")).json()["cookie"])


async def send(daemon: Daemon, cookie: str, path: str = PATHS[0]) -> httpx.Response:
    daemon.secrets.add(BANK)
    return await daemon.ask("POST", path, {"cookie": cookie})


def account_of(daemon: Daemon, portal: Portal) -> Account:
    account = portal.account()
    daemon.secrets |= account.secrets
    return account


@pytest.mark.parametrize("form", FORMS)
async def test_cookie_in_each_form_is_stored_as_the_headers_value_and_makes_links(
    linking: Daemon, portal: Portal, form: str
) -> None:
    account, item = account_of(linking, portal), portal.item()
    answer = await send(linking, FORMS[form](account.cookie), PATHS[len(form) % 2])
    assert answer.status_code == 200, answer.text
    assert await stored(linking) == account.cookie
    answer = await linking.convert(portal.link(item), account=None)
    expected = portal.entry(item, account, product=False)
    assert (answer.status_code, answer.json()["mapping"]) == (200, {portal.link(item): expected})


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("path", ["/api/convert", "/api/convert-text"])
async def test_cookie_in_each_form_makes_links_for_one_request(
    linking: Daemon, portal: Portal, path: str, form: str
) -> None:
    account, item = account_of(linking, portal), portal.item()
    link = portal.link(item)
    body = {"links": [link], "text": link, "cookie": FORMS[form](account.cookie)}
    answer = await linking.ask("POST", path, body, token=await linking.login())
    expected = portal.entry(item, account, product=False)
    assert (answer.status_code, answer.json()["mapping"]) == (200, {link: expected})


def numbered(count: int, value: str) -> str:
    """Return `count` pairs with different names."""
    return "; ".join(f"n{number}={value}" for number in range(count))


GOOD = "SPC_EC=.secret-ec; SPC_ST=.secret-st"
REFUSED = {
    "html": (f"<!DOCTYPE html>\n<p>{GOOD}</p>", "this is HTML (a web page), not a cookie; send "),
    "json": ('{"SPC_EC": ".secret-ec"}', "this JSON is no cookie export"),
    "cut json": ('[{"name": "SPC_EC", "value": ".secret-ec', "so it may be cut off; send "),
    "bank": (
        json.dumps([{"name": "SPC_EC", "value": ".secret-ec", "domain": ".evil-shopee.vn"}]),
        "no unexpired cookie of 127.0.0.1 or affiliate.shopee.vn or shopee.vn; it has cookies of "
        "evil-shopee.vn; log in to 127.0.0.1 and export",
    ),
    "curl with a file": ("curl -b cookies.txt https://shopee.vn/", "(-b FILE)"),
    "curl without one": ("curl https://shopee.vn/", "this curl command sends no cookie; send "),
    "no login": ("SPC_F=x; SPC_EC=-; SPC_ST=", "neither SPC_EC nor SPC_ST has a value in it"),
    "no pair": ("no cookie", "holds no name=value pair"),
    "control": (f"{GOOD};\r\nSPC_U=1", "holds a control character"),
    "ellipsis": (f"{GOOD}; csrftoken=abc\u2026", "pair 3 has the character U+2026, which no HTTP"),
    "half": (f"{GOOD}; csrftoken=abc\ud83d", "pair 3 has the character U+FFFD, which no HTTP"),
    "long": (f"{GOOD}; x={'v' * 4096}", "pair 3 is over the 4096 bytes"),
    "large": (f"{GOOD}; {numbered(101, 'v' * 650)}", "bytes, more than the 65536"),
    "many": (f"{GOOD}; {numbered(149, 'v')}", "151 pairs, more than the 150"),
}


@pytest.mark.parametrize("kind", REFUSED)
async def test_what_is_no_cookie_is_refused_by_name_and_the_stored_one_stays(
    linking: Daemon, portal: Portal, kind: str
) -> None:
    text, error = REFUSED[kind]
    account = account_of(linking, portal)
    linking.secrets |= {".secret-ec", ".secret-st"}
    await linking.sync(account)
    token = await linking.login()
    for path in (*PATHS, "/api/convert", "/api/convert-text"):
        body = {"cookie": text, "links": [portal.link(portal.item())], "text": "no link"}
        answer = await linking.ask("POST", path, body, token=token)
        assert (answer.status_code, answer.json()["ok"]) == (400, False)
        assert answer.json()["error"].startswith("cookie: ")
        assert error in answer.json()["error"]
    assert await stored(linking) == account.cookie


async def test_export_of_many_foreign_cookies_counts_only_what_is_taken(
    linking: Daemon, portal: Portal
) -> None:
    account = account_of(linking, portal)
    bank = [{"name": f"n{n}", "value": BANK * 100, "domain": f"d{n}.example"} for n in range(500)]
    text = json.dumps([*bank, *entries(account.cookie, ".shopee.vn")])
    assert len(text) > 800_000
    answer = await send(linking, text)
    assert answer.status_code == 200, answer.text
    assert await stored(linking) == account.cookie


@pytest.fixture(scope="module")
def storing(running: Running) -> Iterator[Daemon]:
    """A daemon without a browser, with a portal and a shop of other domains than the market's."""
    addresses = {"portal_url": "https://portal.shop.example", "shop_url": "https://shop.example"}
    with running(**by_open_api("http://127.0.0.1:1"), marketplace=addresses) as daemon:
        yield daemon


@pytest.mark.parametrize(
    "cookie",
    [
        f"SPC_EC=x; {numbered(101, 'v' * 650)}"[:65536],
        f"SPC_EC=x; n={'x' * 4094}",
        f"SPC_EC=x; {numbered(149, 'v')}",
        "SPC_ST=x; SPC_EC=-",
    ],
    ids=["64 KiB", "4096 bytes", "150 pairs", "one login cookie"],
)
async def test_cookie_just_within_a_limit_is_stored(storing: Daemon, cookie: str) -> None:
    answer = await send(storing, cookie)
    assert answer.status_code == 200, answer.text
    assert await stored(storing) == cookie


async def test_export_counts_unexpired_cookies_of_the_market_s_hosts_and_below(
    storing: Daemon,
) -> None:
    domains = {
        "portal.shop.example": True,
        ".shop.example": True,
        "www.shop.example": True,
        "affiliate.shopee.vn": True,
        ".shopee.vn": True,
        "help.shopee.vn": True,
        "evil-shopee.vn": False,
        "shopee.vn.example": False,
        "example": False,
    }
    export = [{"name": "SPC_EC", "value": "x", "domain": "shop.example"}]
    export += [{"name": f"n{n}", "value": "x", "domain": each} for n, each in enumerate(domains)]
    old = {"name": "old", "value": "x", "domain": "shop.example", "expirationDate": 1.5}
    assert (await send(storing, json.dumps([*export, old]))).status_code == 200
    taken = [f"n{n}=x" for n, is_taken in enumerate(domains.values()) if is_taken]
    assert await stored(storing) == "; ".join(["SPC_EC=x", *taken])


@pytest.mark.parametrize("portal_is_first", [True, False])
async def test_of_two_csrftokens_in_an_export_the_portals_is_stored(
    storing: Daemon, portal_is_first: bool
) -> None:
    tokens = [
        {"name": "csrftoken", "value": "of-portal", "domain": "portal.shop.example"},
        {"name": "csrftoken", "value": "of-shop", "domain": ".shop.example"},
    ]
    export = [{"name": "SPC_EC", "value": "x", "domain": ".shop.example"}]
    export += tokens if portal_is_first else tokens[::-1]
    assert (await send(storing, json.dumps(export))).status_code == 200
    assert await stored(storing) == "SPC_EC=x; csrftoken=of-portal"


async def test_cookie_with_a_host_prefix_is_set_host_only(running: Running) -> None:
    """The portal is below the shop's domain. Chromium's requests show which cookies each host
    gets."""

    def answer(path: str, _body: str) -> Reply:
        picture = f'<img src="http://www.shop.localhost:{port}/picture">'
        return Reply("" if path == "/picture" else picture)

    with host(answer) as site:
        port = site.url.rpartition(":")[2]
        addresses = {name: f"http://{each}:{port}" for name, each in LOCAL_HOSTS.items()}
        with running(marketplace=addresses, browser={"job_timeout": 2}) as daemon:
            daemon.wait_for_browser()
            link = f"{addresses['shop_url']}/product/1/2"
            body = {"links": [link], "cookie": "SPC_EC=x; __Host-n=1; __Secure-n=2"}
            token = await daemon.login()
            answered = await daemon.ask("POST", "/api/convert", body, token=token)
    assert answered.status_code == 502
    seen = {call.host: set(call.cookie.split("; ")) for call in site.calls}
    assert seen["portal.shop.localhost"] == {"SPC_EC=x", "__Host-n=1", "__Secure-n=2"}
    assert seen["www.shop.localhost"] == {"SPC_EC=x", "__Secure-n=2"}


async def test_replaced_account_is_no_longer_listed_as_active_until_it_is_used(
    linking: Daemon, portal: Portal
) -> None:
    first, second = account_of(linking, portal), account_of(linking, portal)
    await linking.sync(first)
    await linking.convert(portal.link(portal.item()), account=None)
    assert (await states(linking))[first.number] == "active"
    await linking.sync(second)
    shown = await states(linking)
    assert first.number not in shown
    assert second.number in shown
    assert first.number not in await linking.run("account", "show")
    await linking.convert(portal.link(portal.item()), account=first)
    assert (await states(linking))[first.number] == "active"


async def test_stored_cookies_account_is_listed_first(linking: Daemon, portal: Portal) -> None:
    first, second = account_of(linking, portal), account_of(linking, portal)
    await linking.convert(portal.link(portal.item()), account=first)
    await linking.sync(second)
    answer = await linking.ask("GET", "/api/account", token=await linking.login())
    names = [each["name"] for each in answer.json()["accounts"]]
    assert names[0] == second.number
    assert first.number in names


async def states(daemon: Daemon) -> dict[str, str]:
    return {each["account"]: each["state"] for each in (await daemon.status())["accounts"]}
