"""The page's session: a cookie that only the daemon's own page can use, and what ends it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from http.cookies import SimpleCookie
from typing import TYPE_CHECKING, Any

import httpx
import pyotp
import pytest
import trio

from tests.config_file import WITHOUT_BROWSER

if TYPE_CHECKING:
    from tests.contract.conftest import Daemon
    from tests.e2e.conftest import Running

pytestmark = pytest.mark.chromium

Json = dict[str, Any]

SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin"}
WEEK = 7 * 24 * 3600
ECHO = {"name": "echo", "runner": "command", "command": ["/bin/echo"]}
ASKS = {
    "name": "asks",
    "runner": "command",
    "command": ["/bin/sleep", "60"],
    "grace": 1,
}


@pytest.fixture(scope="module")
def daemon(running: Running) -> Iterator[Daemon]:
    """A daemon without a browser, with crews, behind a trusted proxy on loopback."""
    with running(
        **WITHOUT_BROWSER,
        cookie={"open_to": []},
        server={"trusted_proxies": ["127.0.0.1"]},
        crews=[ECHO, ASKS],
    ) as daemon:
        yield daemon


class Browser:
    """A browser in which the owner is logged in."""

    def __init__(self, daemon: Daemon, answer: httpx.Response) -> None:
        (header,) = answer.headers.get_list("set-cookie")
        ((self.name, morsel),) = SimpleCookie(header).items()
        self.header, self.token, self._daemon = header, morsel.value, daemon
        daemon.secrets.add(self.token)

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        headers: Mapping[str, str] = SAME_ORIGIN,
        token: str = "",
    ) -> httpx.Response:
        sent = {"Cookie": f"other=1; {self.name}={self.token}", **headers}
        return await self._daemon.ask(method, path, body, headers=sent, token=token)

    async def is_in(self) -> bool:
        status = (await self.ask("GET", "/api/log")).status_code
        assert status in (200, 403)
        return status == 200


async def log_in(daemon: Daemon, **headers: str) -> Browser:
    body = {"password": daemon.password, "session": "cookie"}
    answer = await daemon.ask("POST", "/api/auth/login", body, headers=headers)
    assert (answer.status_code, answer.json()) == (200, {"ok": True, "mfaRequired": False})
    return Browser(daemon, answer)


def attributes(browser: Browser) -> set[str]:
    return set(browser.header.split("; ")[1:])


# The cookie


async def test_login_sets_cookie_and_answers_no_token(daemon: Daemon) -> None:
    browser = await log_in(daemon)
    assert browser.name.startswith("smartlinkd_")
    assert attributes(browser) == {"HttpOnly", "SameSite=Strict", "Path=/", f"Max-Age={WEEK}"}
    assert await browser.is_in()


async def test_login_without_it_answers_token_and_sets_no_cookie(daemon: Daemon) -> None:
    for more in ({}, {"session": None}, {"session": "token"}):
        body = {"password": daemon.password, **more}
        answer = await daemon.ask("POST", "/api/auth/login", body)
        daemon.secrets.add(answer.json()["token"])
        assert answer.json().keys() == {"ok", "token", "mfaRequired"}
        assert "set-cookie" not in answer.headers
    answer = await daemon.ask("POST", "/api/auth/login", {"password": "x", "session": "else"})
    assert (answer.status_code, answer.json()["error"][:9]) == (400, "session: ")


async def test_wrong_password_sets_no_cookie(daemon: Daemon) -> None:
    body = {"password": "wrong", "session": "cookie"}
    answer = await daemon.ask("POST", "/api/auth/login", body)
    assert (answer.status_code, "set-cookie" in answer.headers) == (401, False)


@pytest.mark.parametrize(
    "header",
    [{"X-Forwarded-Proto": "https"}, {"X-Forwarded-Proto": "HTTPS, http"},
     {"Forwarded": "for=192.0.2.1;proto=https"}],
)  # fmt: skip
async def test_cookie_is_secure_behind_https_of_a_trusted_proxy(
    daemon: Daemon, header: dict[str, str]
) -> None:
    browser = await log_in(daemon, **header)
    assert "Secure" in attributes(browser)
    answer = await browser.ask("POST", "/api/auth/logout", headers={**SAME_ORIGIN, **header})
    assert "Secure" in answer.headers["set-cookie"]


@pytest.mark.parametrize(
    "header", [{"X-Forwarded-Proto": "http"}, {"X-Forwarded-Proto": "http, https"}, {}]
)
async def test_cookie_is_not_secure_behind_plain_http(
    daemon: Daemon, header: dict[str, str]
) -> None:
    assert "Secure" not in attributes(await log_in(daemon, **header))


async def test_https_of_an_untrusted_proxy_and_two_daemons_on_one_host(
    daemon: Daemon, running: Running
) -> None:
    with running(**WITHOUT_BROWSER) as other:
        there = await log_in(other, **{"X-Forwarded-Proto": "https"})
        here = await log_in(daemon)
        assert "Secure" not in attributes(there)
        assert here.name != there.name
        both = f"{here.name}={here.token}; {there.name}={there.token}"
        for each in (daemon, other):
            answer = await each.ask("GET", "/api/log", headers={**SAME_ORIGIN, "Cookie": both})
            assert answer.status_code == 200


async def test_second_step_sets_cookie_too(daemon: Daemon) -> None:
    browser = await log_in(daemon)
    secret = (await browser.ask("GET", "/api/auth/2fa/setup")).json()["secret"]
    daemon.secrets.add(secret)
    now = int(time.time())
    enabled = {"secret": secret, "code": pyotp.TOTP(secret).at(now)}
    assert (await browser.ask("POST", "/api/auth/2fa/enable", enabled)).status_code == 200
    try:
        assert await browser.is_in()
        body: Json = {"password": daemon.password, "session": "cookie"}
        first = await daemon.ask("POST", "/api/auth/login", body)
        assert first.json().keys() == {"ok", "mfaRequired", "tempToken"}
        assert "set-cookie" not in first.headers
        temp = first.json()["tempToken"]
        daemon.secrets.add(temp)
        body = {"tempToken": temp, "code": pyotp.TOTP(secret).at(now + 30), "session": "cookie"}
        second = await daemon.ask("POST", "/api/auth/verify-mfa", body)
        assert (second.status_code, second.json()) == (200, {"ok": True})
        assert await Browser(daemon, second).is_in()
    finally:
        await daemon.run("2fa", "off")


# Requests for which the cookie counts


async def test_cookie_counts_only_for_the_daemons_own_page(daemon: Daemon) -> None:
    browser = await log_in(daemon)
    own = daemon.url.removeprefix("http://")
    good: list[dict[str, str]] = [
        {"Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "same-origin", "Origin": f"http://{own}"},
        {"Origin": f"http://{own}"},
        {"Origin": f"https://{own}"},
        {"Referer": f"http://{own}/app/"},
    ]
    bad: list[dict[str, str]] = [
        {},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Origin": f"http://{own}"},
        {"Sec-Fetch-Site": "none"},
        {"Sec-Fetch-Site": ""},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1"},
        {"Origin": f"http://{own}.evil.example"},
        {"Origin": "http://127.0.0.1:1", "Referer": f"http://{own}/app/"},
        {"Origin": "chrome-extension://abcdefghijklmnopabcdefghijklmnop"},
        {"Referer": f"http://{own}.evil.example/"},
        {"Referer": f"http://evil.example/?http://{own}/"},
        {"Referer": own},
    ]
    for headers in good:
        assert (await browser.ask("GET", "/api/log", headers=headers)).status_code == 200, headers
    for headers in bad:
        assert (await browser.ask("GET", "/api/log", headers=headers)).status_code == 403, headers
    # A browser sends the origin with every POST request.
    referer = {"Referer": f"http://{own}/app/"}
    assert (await browser.ask("POST", "/api/keys", {}, headers=referer)).status_code == 403
    origin = {"Origin": f"http://{own}"}
    assert (await browser.ask("POST", "/api/keys", {}, headers=origin)).status_code == 400


async def test_authorization_header_wins_over_cookie(daemon: Daemon) -> None:
    browser = await log_in(daemon)
    assert (await browser.ask("GET", "/api/log", token="wrong")).status_code == 403
    basic = {**SAME_ORIGIN, "Authorization": "Basic eDp5"}
    assert (await browser.ask("GET", "/api/log", headers=basic)).status_code == 403
    body = {"name": "a bot", "scopes": ["metrics"]}
    key = (await browser.ask("POST", "/api/keys", body)).json()["key"]
    daemon.secrets.add(key)
    assert (await browser.ask("GET", "/metrics", token=key)).status_code == 200
    assert (await browser.ask("GET", "/api/log", token=key)).status_code == 403
    assert (await browser.ask("GET", "/api/log")).status_code == 200


async def test_cookie_with_a_key_in_it_opens_nothing(daemon: Daemon) -> None:
    browser = await log_in(daemon)
    body = {"name": "a bot", "scopes": ["status", "crews"]}
    browser.token = (await browser.ask("POST", "/api/keys", body)).json()["key"]
    daemon.secrets.add(browser.token)
    assert (await browser.ask("GET", "/api/status")).status_code == 403
    assert (await browser.ask("GET", "/crews/echo/inputs")).status_code == 401


# Access with the cookie


async def test_cookie_opens_crews_apis_as_the_organization_token(daemon: Daemon) -> None:
    browser = await log_in(daemon)
    assert (await browser.ask("GET", "/crews/echo/inputs")).json() == {"inputs": []}
    kicked = await browser.ask("POST", "/crews/echo/kickoff", {"inputs": {}})
    kickoff_id = kicked.json()["kickoff_id"]
    status = await browser.ask("GET", f"/crews/echo/status/{kickoff_id}?wait=30")
    assert status.json()["state"] in ("SUCCESS", "FAILED")
    events = await browser.ask("GET", f"/crews/echo/events/{kickoff_id}")
    assert (events.status_code, "crew_kickoff" in events.text) == (200, True)
    refused = await browser.ask("GET", "/crews/echo/inputs", headers={})
    assert (refused.status_code, refused.json()["error"]) == (401, "Unauthorized")
    await browser.ask("POST", "/api/auth/logout")
    ended = await browser.ask("GET", "/crews/echo/inputs")
    assert (ended.status_code, ended.json()["error"]) == (401, "Unauthorized")


async def test_session_token_in_authorization_header_opens_no_crew(daemon: Daemon) -> None:
    browser = await log_in(daemon)
    answer = await daemon.ask("GET", "/crews/echo/inputs", token=browser.token)
    assert answer.status_code == 401


async def test_event_stream_ends_with_its_session(daemon: Daemon) -> None:
    browser, other = await log_in(daemon), await log_in(daemon)
    kicked = await browser.ask("POST", "/crews/asks/kickoff", {"inputs": {}})
    kickoff_id = kicked.json()["kickoff_id"]
    url = httpx.URL(daemon.url)
    head = (
        f"GET /crews/asks/events/{kickoff_id} HTTP/1.1\r\nHost: {url.netloc.decode()}\r\n"
        f"Cookie: {browser.name}={browser.token}\r\nSec-Fetch-Site: same-origin\r\n\r\n"
    )
    with trio.fail_after(30):
        async with await trio.open_tcp_stream("127.0.0.1", url.port or 0) as stream:
            await stream.send_all(head.encode())
            seen = b""
            while b"crew_kickoff_started" not in seen:
                seen += await stream.receive_some()
            assert seen.startswith(b"HTTP/1.1 200 ")
            await browser.ask("POST", "/api/auth/logout")
            await other.ask("POST", f"/crews/asks/stop/{kickoff_id}")
            while part := await stream.receive_some():
                seen += part
                if seen.endswith(b"0\r\n\r\n"):  # the end of the body (RFC 9112, section 7.1)
                    break
    assert b"crew_kickoff_failed" not in seen
    told = await other.ask("GET", f"/crews/asks/events/{kickoff_id}")
    assert "crew_kickoff_failed" in told.text


# The end of a session


async def test_logout_ends_that_session_only_and_clears_the_cookie(daemon: Daemon) -> None:
    browser, other = await log_in(daemon), await log_in(daemon)
    answer = await browser.ask("POST", "/api/auth/logout")
    assert (answer.status_code, answer.json()) == (200, {"ok": True})
    assert answer.headers["set-cookie"].startswith(f"{browser.name}=; Max-Age=0; Path=/;")
    assert [await each.is_in() for each in (browser, other)] == [False, True]
    assert (await browser.ask("POST", "/api/auth/logout")).status_code == 403


async def test_logout_of_another_page_is_refused(daemon: Daemon) -> None:
    browser = await log_in(daemon)
    cross = {"Sec-Fetch-Site": "cross-site"}
    assert (await browser.ask("POST", "/api/auth/logout", headers=cross)).status_code == 403
    assert await browser.is_in()


async def test_logout_with_bearer_token_ends_it_and_sets_no_cookie(daemon: Daemon) -> None:
    browser = await log_in(daemon)
    answer = await daemon.ask("POST", "/api/auth/logout", token=browser.token)
    assert (answer.status_code, "set-cookie" in answer.headers) == (200, False)
    assert not await browser.is_in()


async def test_revoke_ends_all_sessions_and_keys_only_when_asked(running: Running) -> None:
    with running(**WITHOUT_BROWSER, cookie={"open_to": []}) as daemon:
        browser, bearer = await log_in(daemon), await daemon.login()
        body: Json = {"name": "a bot", "scopes": ["metrics"]}
        key = (await browser.ask("POST", "/api/keys", body)).json()["key"]
        daemon.secrets.add(key)
        answer = await browser.ask("POST", "/api/auth/revoke")
        assert (answer.status_code, answer.json()) == (200, {"ok": True})
        assert "Max-Age=0" in answer.headers["set-cookie"]
        assert not await browser.is_in()
        assert (await daemon.ask("GET", "/api/log", token=bearer)).status_code == 403
        assert (await daemon.ask("GET", "/metrics", token=key)).status_code == 200

        browser = await log_in(daemon)
        await browser.ask("POST", "/api/auth/revoke", {"keys": False})
        assert (await daemon.ask("GET", "/metrics", token=key)).status_code == 200
        browser = await log_in(daemon)
        answer = await browser.ask("POST", "/api/auth/revoke", {"keys": "yes"})
        assert (answer.status_code, answer.json()["error"][:5]) == (400, "keys:")
        await browser.ask("POST", "/api/auth/revoke", {"keys": True})
        assert (await daemon.ask("GET", "/metrics", token=key)).status_code == 403


async def test_logout_survives_kill_and_so_does_the_other_session(running: Running) -> None:
    with running(**WITHOUT_BROWSER, cookie={"open_to": []}) as daemon:
        browser, other = await log_in(daemon), await log_in(daemon)
        await browser.ask("POST", "/api/auth/logout")
        await daemon.kill()
        daemon.start()
        assert [await each.is_in() for each in (browser, other)] == [False, True]
        assert (await log_in(daemon)).name == browser.name
