"""Access to the open endpoints: local clients, keys, forged headers; and wrong keys in the log."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from trio.testing import MockClock

from smartlinkd.api.auth_guards import MAX_ADDRESSES, NOTICED, WINDOW, FailedSyncKeys
from smartlinkd.logs import LogEvent

if TYPE_CHECKING:
    from tests.api.conftest import Daemon, Start

SYNC_KEY = "key-for-the-extension-0123456789"
PATH = "/api/sync-cookie"
CLOSED = {"open_to": [], "sync_key": SYNC_KEY}
TOLD = "10 wrong keys came within an hour from {}; nobody is refused for that"


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    records = [each for each in caplog.records if each.name == FailedSyncKeys.__module__]
    assert all(each.levelname == "WARNING" for each in records)
    assert all(getattr(each, "event", None) is LogEvent.SYNC_KEY_GUESSED for each in records)
    return [each.getMessage() for each in records]


@pytest.fixture
def keys(mock_clock: MockClock) -> FailedSyncKeys:
    return FailedSyncKeys(mock_clock.current_time)


async def wrong(daemon: Daemon, times: int, **headers: str) -> None:
    for number in range(times):
        answer = await daemon.get(PATH, token=f"wrong-{number}", **headers)
        assert answer.status_code == 403


async def test_tenth_wrong_key_is_logged_and_the_right_one_stays_good(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    daemon = await start(cookie=CLOSED)
    for token in ("", SYNC_KEY):
        for _ in range(NOTICED):
            await daemon.get(PATH, token=token)
    await wrong(daemon, 9)
    assert told(caplog) == []
    await wrong(daemon, 30)
    assert told(caplog) == [TOLD.format("127.0.0.1")]
    assert (await daemon.get(PATH, token=SYNC_KEY)).status_code == 200
    assert (await daemon.get(PATH, token=await daemon.login())).status_code == 200
    assert "wrong-" not in caplog.text
    assert SYNC_KEY not in caplog.text


async def test_wrong_keys_are_counted_by_forwarded_address(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    daemon = await start(cookie=CLOSED, server={"trusted_proxies": ["127.0.0.1"]})
    await wrong(daemon, 9, X_Forwarded_For="203.0.113.7")
    await wrong(daemon, 9, X_Forwarded_For="203.0.113.8")
    assert told(caplog) == []
    await wrong(daemon, 1, X_Forwarded_For="203.0.113.8")
    assert told(caplog) == [TOLD.format("203.0.113.8")]


@pytest.mark.parametrize(
    "cookie", [{"sync_key": SYNC_KEY}, {"open_to": []}], ids=["local", "there is no key"]
)
async def test_key_that_nobody_checks_is_not_counted(
    start: Start, caplog: pytest.LogCaptureFixture, cookie: dict[str, object]
) -> None:
    daemon = await start(cookie=cookie)
    for _ in range(NOTICED):
        await daemon.get(PATH, token="anything")
    assert told(caplog) == []


def test_wrong_keys_are_counted_anew_each_hour(
    keys: FailedSyncKeys, mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(9):
        keys.note("192.0.2.1")
    mock_clock.jump(WINDOW)
    for _ in range(9):
        keys.note("192.0.2.1")
    assert told(caplog) == []
    mock_clock.jump(WINDOW - 1)
    keys.note("192.0.2.1")
    mock_clock.jump(1)
    for _ in range(100):
        keys.note("192.0.2.1")
    assert told(caplog) == [TOLD.format("192.0.2.1")] * 2


def test_ipv6_network_is_one_address(
    keys: FailedSyncKeys, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(NOTICED):
        keys.note(f"2001:db8::{number}")
    assert told(caplog) == [TOLD.format("2001:db8::9")]


def test_flood_from_everywhere_is_few_records_and_hides_nobody(
    keys: FailedSyncKeys, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(MAX_ADDRESSES):
        keys.note(f"2001:db8:0:{number:x}::1")
    for number in range(NOTICED - 1):
        keys.note(f"192.0.2.{number}")
    assert told(caplog) == []
    keys.note("203.0.113.7")
    assert told(caplog) == [TOLD.format("many addresses, 203.0.113.7 the last of them")]
    for _ in range(NOTICED):
        for number in range(2 * MAX_ADDRESSES):
            keys.note(f"2001:db8:0:{number:x}::1")
    assert len(told(caplog)) == MAX_ADDRESSES + 1


COOKIE = "SPC_U=4711; SPC_EC=.ec-of-4711"
EXTENSION = "chrome-extension://abcdefghijklmnopabcdefghijklmnop"

CALLS: list[tuple[str, str, Any]] = [
    ("POST", "/api/sync-cookie", {"cookie": COOKIE}),
    ("POST", "/api/sync-cookie-local", {"cookie": COOKIE}),
    ("GET", "/api/sync-cookie", None),
]


@dataclass(frozen=True)
class Row:
    """A configuration, what a request looks like, and whether it is local then; `why` not, as the
    refusal tells it.
    """

    why: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    cookie: dict[str, Any] = field(default_factory=dict)
    server: dict[str, Any] = field(default_factory=dict)


NOT_IN = "{} is not in cookie.open_to"
NO_PROXY = "it has a forwarding header, and 127.0.0.1 is not in server.trusted_proxies"
UNCLEAR = "what the headers of server.trusted_proxies say of its address is not clear"
NO_NAME = 'its Host, "{}", is not in server.public_hosts'
FOREIGN = 'its Origin, "{}", is not that of its Host (a proxy has to pass that on)'
PROXY = {"trusted_proxies": ["127.0.0.1"]}
PUBLIC = {"public_hosts": ["links.example.org"]}
ROWS = {
    "public host": Row("", {"Host": "links.example.org"}, server=PUBLIC),
    "extension": Row("", {"Origin": EXTENSION}),
    "forwarded for a neighbour": Row(
        "", {"X_Forwarded_For": "192.0.2.9"}, {"open_to": ["192.0.2.0/24"]}, PROXY
    ),
    "another address": Row(NOT_IN.format("127.0.0.1"), cookie={"open_to": ["127.0.0.2"]}),
    "forwarded by a stranger": Row(NO_PROXY, {"X_Forwarded_For": "127.0.0.1"}),
    "forwarded for nonsense": Row(UNCLEAR, {"X_Forwarded_For": "unknown"}, server=PROXY),
    "rebinding": Row(NO_NAME.format("evil.example:8787"), {"Host": "evil.example:8787"}),
    "foreign page": Row(FOREIGN.format("https://evil.example"), {"Origin": "https://evil.example"}),
}
"""One for each reason. All rules are in test_client_address.py."""


async def statuses(daemon: Daemon, token: str = "", **headers: str) -> set[int]:
    return {
        (await daemon.ask(method, path, body, token=token, **headers)).status_code
        for method, path, body in CALLS
    }


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
async def test_open_endpoint_is_open_to_local_clients_alone(start: Start, row: Row) -> None:
    daemon = await start(cookie=row.cookie, server=row.server)
    assert await statuses(daemon, **row.headers) == {200 if not row.why else 403}
    # The metrics are for the same callers.
    answer = await daemon.get("/metrics", **row.headers)
    assert answer.status_code == (200 if not row.why else 403)
    if row.why:
        answer = await daemon.get("/api/sync-cookie", **row.headers)
        assert answer.json()["error"] == (
            f"this is open to local requests only, and yours is none: {row.why}; send a session "
            "token, an API key with the scope cookie:read or the sync key as "
            "`Authorization: Bearer …`"
        )


async def test_request_without_a_host_is_not_local(daemon: Daemon) -> None:
    request = b"GET /api/sync-cookie HTTP/1.0\r\n\r\n"
    assert b" 403 " in (await daemon.raw(request)).partition(b"\r\n")[0]


@pytest.mark.parametrize("key", ["sync key", "session token"])
async def test_sync_key_or_session_opens_for_anybody(start: Start, key: str) -> None:
    daemon = await start(cookie={"open_to": [], "sync_key": SYNC_KEY})
    token = SYNC_KEY if key == "sync key" else await daemon.login()
    assert await statuses(daemon, token) == {200}
    # whatever else is wrong with the caller
    assert await statuses(daemon, token, Host="evil.example", Via="1.1 proxy") == {200}


async def test_wrong_sync_key_is_403(start: Start) -> None:
    daemon = await start(cookie={"open_to": [], "sync_key": SYNC_KEY})
    for given in ["", "wrong", SYNC_KEY + "x", SYNC_KEY[:-1], SYNC_KEY.upper(), "k\u00e9y"]:
        request = (
            f"GET /api/sync-cookie HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            f"Authorization: Bearer {given}\r\n\r\n"
        )
        answer = await daemon.raw(request.encode("latin1"))
        assert answer.startswith(b"HTTP/1.1 403 "), given
        assert b"sync key" in answer, given


async def test_local_client_with_a_wrong_token_is_let_in(daemon: Daemon) -> None:
    assert await statuses(daemon, "expired") == {200}


async def test_health_and_documents_are_for_everybody(start: Start) -> None:
    daemon = await start(cookie={"open_to": []})
    for path in ["/api/health", "/livez", "/readyz", "/openapi.json", "/docs", "/docs/docs.js"]:
        answer = await daemon.get(path, Host="evil.example", Origin="https://evil.example")
        assert answer.status_code == 200, path
