"""Wrong sync keys are logged in few records and without the key, and nobody is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

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


async def test_missing_or_right_key_is_not_counted(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    daemon = await start(cookie=CLOSED)
    session = await daemon.login()
    for token in ("", SYNC_KEY, session):
        for _ in range(NOTICED):
            await daemon.get(PATH, token=token)
    assert told(caplog) == []


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
