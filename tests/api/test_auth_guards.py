"""Access to the open endpoints: local clients, the sync key; and wrong keys in the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from trio.testing import MockClock

from smartlinkd.api.auth_guards import MAX_NETWORKS, NOTICED, WINDOW, FailedKeys
from smartlinkd.logs import LogEvent

if TYPE_CHECKING:
    from tests.api.conftest import Daemon, Start

SYNC_KEY = "key-for-the-extension-0123456789"
PATH = "/api/sync-cookie"
CLOSED = {"open_to": [], "sync_key": SYNC_KEY}
TOLD = "10 wrong keys came within an hour from {}; nobody is refused for that"


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    records = [each for each in caplog.records if each.name == FailedKeys.__module__]
    assert all(each.levelname == "WARNING" for each in records)
    assert all(getattr(each, "event", None) is LogEvent.SYNC_KEY_GUESSED for each in records)
    return [each.getMessage() for each in records]


@pytest.fixture
def keys() -> FailedKeys:
    return FailedKeys()


async def send_wrong_keys(daemon: Daemon, times: int, address: str) -> None:
    for number in range(times):
        answer = await daemon.get(PATH, token=f"wrong-{number}", X_Forwarded_For=address)
        assert answer.status_code == 403


async def test_tenth_wrong_key_of_an_address_is_logged_and_the_right_one_stays_good(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    daemon = await start(cookie=CLOSED, server={"trusted_proxies": ["127.0.0.1"]})
    address = "203.0.113.8"
    for token in ("", SYNC_KEY):
        for _ in range(NOTICED):
            await daemon.get(PATH, token=token, X_Forwarded_For=address)
    await send_wrong_keys(daemon, 9, "203.0.113.7")
    await send_wrong_keys(daemon, 9, address)
    assert warnings(caplog) == []
    await send_wrong_keys(daemon, 30, address)
    assert warnings(caplog) == [TOLD.format(address)]
    for token in (SYNC_KEY, await daemon.login()):
        assert (await daemon.get(PATH, token=token, X_Forwarded_For=address)).status_code == 200
    assert "wrong-" not in caplog.text
    assert SYNC_KEY not in caplog.text


@pytest.mark.parametrize(
    "cookie", [{"sync_key": SYNC_KEY}, {"open_to": []}], ids=["local", "there is no key"]
)
async def test_key_that_nobody_checks_is_not_counted(
    start: Start, caplog: pytest.LogCaptureFixture, cookie: dict[str, object]
) -> None:
    daemon = await start(cookie=cookie)
    for _ in range(NOTICED):
        await daemon.get(PATH, token="anything")
    assert warnings(caplog) == []


async def test_wrong_keys_are_counted_anew_each_hour(
    keys: FailedKeys, mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(9):
        keys.note("192.0.2.1")
    mock_clock.jump(WINDOW)
    for _ in range(9):
        keys.note("192.0.2.1")
    assert warnings(caplog) == []
    mock_clock.jump(WINDOW - 1)
    keys.note("192.0.2.1")
    mock_clock.jump(1)
    for _ in range(100):
        keys.note("192.0.2.1")
    assert warnings(caplog) == [TOLD.format("192.0.2.1")] * 2


async def test_ipv6_network_is_one_address(
    keys: FailedKeys, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(NOTICED):
        keys.note(f"2001:db8::{number}")
    assert warnings(caplog) == [TOLD.format("2001:db8::9")]


async def test_flood_from_everywhere_is_few_records_and_hides_nobody(
    keys: FailedKeys, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(MAX_NETWORKS):
        keys.note(f"2001:db8:0:{number:x}::1")
    for number in range(NOTICED - 1):
        keys.note(f"192.0.2.{number}")
    assert warnings(caplog) == []
    keys.note("203.0.113.7")
    assert warnings(caplog) == [TOLD.format("many addresses, 203.0.113.7 the last of them")]
    for _ in range(NOTICED):
        for number in range(2 * MAX_NETWORKS):
            keys.note(f"2001:db8:0:{number:x}::1")
    assert len(warnings(caplog)) == MAX_NETWORKS + 1


# Access; the rules are tested in test_client_address.py


async def test_client_that_is_not_local_is_told_why_and_what_to_send(daemon: Daemon) -> None:
    for path in ("/metrics", PATH):
        answer = await daemon.get(path, Host="evil.example:8787")
        assert answer.status_code == 403
    assert answer.json()["error"] == (
        "this is open to local requests only, and yours is none: its Host, "
        '"evil.example:8787", is not in server.public_hosts; send a session token, an API key '
        "with the scope cookie:read or the sync key as `Authorization: Bearer …`"
    )


async def test_wrong_sync_key_is_403(start: Start) -> None:
    daemon = await start(cookie=CLOSED)
    for given in ["", "wrong", SYNC_KEY + "x", SYNC_KEY[:-1], SYNC_KEY.upper(), "k\u00e9y"]:
        answer = await daemon.ask_raw("GET", PATH, f"Bearer {given}")
        assert answer.startswith(b"HTTP/1.1 403 "), given
        assert b"sync key" in answer, given


async def test_local_client_with_a_wrong_token_is_let_in(daemon: Daemon) -> None:
    assert (await daemon.get(PATH, token="expired")).status_code == 200
