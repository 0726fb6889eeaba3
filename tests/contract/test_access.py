"""Access to the cookie without a token: who may store and read it, and the answers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.config_file import WITHOUT_BROWSER

if TYPE_CHECKING:
    from tests.contract.conftest import Daemon, Running

Json = dict[str, Any]

KEY = "sync-key-of-the-extension-0123456789"
COOKIE = {"cookie": "SPC_U=4711; SPC_EC=a-session"}
OPERATIONS = [
    ("POST", "/api/sync-cookie", COOKIE),
    ("POST", "/api/sync-cookie-local", COOKIE),
    ("GET", "/api/sync-cookie", None),
]
EXTENSION = "chrome-extension://abcdefghijklmnopabcdefghijklmnop"
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


@pytest.fixture(scope="module")
def standard(running: Running) -> Iterator[Daemon]:
    """A daemon with the standard access: loopback only. It has one trusted proxy, at 127.0.0.2."""
    with running(
        **WITHOUT_BROWSER,
        server={
            "trusted_proxies": ["127.0.0.2"],
            "public_hosts": ["links.example.org"],
            "bind": "127.0.0.1:0",
        },
        cookie={"sync_key": KEY, "extension_origins": [EXTENSION]},
    ) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def closed(running: Running) -> Iterator[Daemon]:
    """A daemon whose cookie endpoints are open to nobody, like the installed service."""
    with running(**WITHOUT_BROWSER, cookie={"sync_key": KEY, "open_to": []}) as daemon:
        yield daemon


async def statuses(daemon: Daemon, *, token: str = "", **headers: str) -> set[int]:
    """Call all three operations. Return their statuses."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    found = set()
    for method, path, body in OPERATIONS:
        answer = await daemon.ask(method, path, body, token=token, headers=named)
        assert answer.json()["ok"] is (answer.status_code == 200), answer.text
        found.add(answer.status_code)
    return found


async def ask_from(daemon: Daemon, address: str, **headers: str) -> httpx.Response:
    """Read the cookie from another loopback address."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    transport = httpx.AsyncHTTPTransport(verify=False, local_address=address)
    async with httpx.AsyncClient(transport=transport, trust_env=False) as client:
        return await client.get(f"{daemon.url}/api/sync-cookie", headers=named)


async def test_loopback_client_needs_no_token(standard: Daemon) -> None:
    assert await statuses(standard) == {200}


async def test_closed_daemon_wants_a_session_or_the_sync_key(closed: Daemon) -> None:
    assert await statuses(closed) == {403}
    assert await statuses(closed, token="wrong-key-of-the-extension-012345678") == {403}
    assert await statuses(closed, token=KEY) == {200}
    assert await statuses(closed, token=await closed.login()) == {200}


async def test_sync_key_opens_nothing_else(closed: Daemon) -> None:
    for path in ("/api/status", "/api/keys", "/api/account", "/api/history"):
        assert (await closed.ask("GET", path, token=KEY)).status_code == 403


async def test_request_through_a_trusted_proxy_counts_as_the_forwarded_address(
    standard: Daemon,
) -> None:
    here = await ask_from(standard, "127.0.0.2", X_Forwarded_For="127.0.0.1")
    assert here.status_code == 200
    elsewhere = await ask_from(standard, "127.0.0.2", X_Forwarded_For="203.0.113.7")
    assert elsewhere.status_code == 403


async def test_forwarding_header_of_anybody_else_makes_the_request_not_local(
    standard: Daemon,
) -> None:
    for name in ("X_Forwarded_For", "Forwarded", "X_Real_IP", "Via"):
        value = "1.1 a-proxy" if name == "Via" else "for=127.0.0.1"
        value = "127.0.0.1" if name in ("X_Forwarded_For", "X_Real_IP") else value
        assert await statuses(standard, **{name: value}) == {403}, name
        assert await statuses(standard, token=KEY, **{name: value}) == {200}, name


async def test_foreign_host_makes_the_request_not_local(standard: Daemon) -> None:
    port = standard.url.rpartition(":")[2]
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", "[::1]:80", "links.example.org"):
        assert await statuses(standard, Host=host) == {200}, host
    for host in ("rebound.example", "links.example.org.evil.example", "localhost.evil.example"):
        assert await statuses(standard, Host=host) == {403}, host


async def test_page_of_another_origin_is_no_local_client_and_there_is_no_cors(
    standard: Daemon,
) -> None:
    for origin in ("https://evil.example", "null", "http://127.0.0.1:1"):
        answer = await standard.ask("GET", "/api/sync-cookie", headers={"Origin": origin})
        assert answer.status_code == 403, origin
        assert "Access-Control-Allow-Origin" not in answer.headers


async def test_configured_extension_has_cors_and_a_preflight(standard: Daemon) -> None:
    asked = {
        "Origin": EXTENSION,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type",
    }
    preflight = await standard.ask("OPTIONS", "/api/sync-cookie", headers=asked)
    assert preflight.status_code in (200, 204)
    assert preflight.headers["Access-Control-Allow-Origin"] == EXTENSION
    answer = await standard.ask(
        "POST", "/api/sync-cookie", COOKIE, token=KEY, headers={"Origin": EXTENSION}
    )
    assert answer.status_code == 200
    assert answer.headers["Access-Control-Allow-Origin"] == EXTENSION
    other = asked | {"Origin": EXTENSION.replace("abcd", "dcba")}
    refused = await standard.ask("OPTIONS", "/api/sync-cookie", headers=other)
    assert refused.status_code == 405
    assert "Access-Control-Allow-Origin" not in refused.headers


async def test_open_to_every_address_opens_it_to_all_and_is_warned_of(
    running: Running, standard: Daemon
) -> None:
    assert "cookie.open_to" not in standard.program.log.read_text()
    with running(
        **WITHOUT_BROWSER,
        server={"trusted_proxies": ["127.0.0.1"], "bind": "127.0.0.1:0"},
        cookie={"open_to": ["0.0.0.0/0", "::/0"]},
    ) as daemon:
        assert await statuses(daemon, X_Forwarded_For="203.0.113.7") == {200}
    public = {**WITHOUT_BROWSER, "server": {"bind": "0.0.0.0:0"}}
    with running(**public, cookie={"open_to": ["0.0.0.0/0", "::/0"]}) as daemon:
        assert await statuses(daemon) == {200}
        warned = [line for line in daemon.program.log.read_text().splitlines() if "open_to" in line]
        assert len(warned) == 1
        assert "warning" in warned[0].lower()


async def test_sync_without_a_name_has_the_operations_own(standard: Daemon) -> None:
    for path, name in (("sync-cookie", "Affiliate"), ("sync-cookie-local", "Local Sync")):
        answer = await standard.ask("POST", f"/api/{path}", COOKIE)
        assert answer.json()["accountName"] == name
        named = await standard.ask("POST", f"/api/{path}", COOKIE | {"accountName": "Tiệm Son"})
        assert named.json()["accountName"] == "Tiệm Son"


async def test_times_are_iso_8601_in_utc_with_milliseconds(standard: Daemon) -> None:
    answer = await standard.ask("POST", "/api/sync-cookie", COOKIE)
    assert re.fullmatch(TIME, answer.json()["syncedAt"])
    stored = await standard.ask("GET", "/api/sync-cookie")
    assert stored.json()["syncedAt"] == answer.json()["syncedAt"]


async def test_nothing_stored_is_200_and_not_ok(running: Running) -> None:
    with running(**WITHOUT_BROWSER) as daemon:
        answer = await daemon.ask("GET", "/api/sync-cookie")
        assert (answer.status_code, answer.json()["ok"]) == (200, False)
        assert answer.json()["error"]


@pytest.mark.chromium
async def test_health_says_whether_the_browser_runs_script(running: Running) -> None:
    with running(products={"source": "none"}) as daemon:
        await daemon.until_ready()
        health = (await daemon.ask("GET", "/api/health")).json()
        assert (health["ok"], health["browserReady"]) == (True, True)
    with running(browser={"executable": "/nowhere/chromium"}) as daemon:
        health = (await daemon.ask("GET", "/api/health")).json()
        assert (health["ok"], health["browserReady"]) == (True, False)
