"""A pause outlasts the process: what is on the disk, when, and what the next daemon does."""

from __future__ import annotations

import errno
import json
import logging
import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.conversion import pause_store as module
from smartlinkd.conversion.account import Account, AccountStatus
from smartlinkd.conversion.pause_store import (
    FILE,
    MAX_COOKIES,
    RETRY_S,
    Pause,
    PauseStore,
)
from smartlinkd.marketplace.errors import HumanCheck
from smartlinkd.state_files import NotSaved, StateUnusable, replace_file
from smartlinkd.vault.cookie import parse_cookie
from tests.fakes.threads import threads_in_place
from tests.shortage import Shortage

if TYPE_CHECKING:
    from tests.conversion.conftest import Fakes

ONE = Pause("1001", ("digest",), datetime(2026, 11, 21, 3, 0, tzinfo=UTC))
OTHER = Pause("open api", (None,), datetime(2026, 11, 21, 4, 0, tzinfo=UTC))
FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write on trio's own thread: a mock clock does not wait for others."""
    threads_in_place(monkeypatch)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> list[Exception]:
    """Errors of the next writes, in their order; then writes work again."""
    faults: list[Exception] = []

    def written(path: Path, content: bytes) -> None:
        if faults:
            raise faults.pop(0)
        replace_file(path, content)

    monkeypatch.setattr(module, "replace_file", written)
    return faults


def not_saved() -> NotSaved:
    error = NotSaved("pauses.json could not be written: No space left on device")
    error.__cause__ = FULL
    return error


async def write_out(pauses: PauseStore) -> None:
    """Run one instance of its task, which is told to stop at once."""
    async with trio.open_nursery() as nursery:
        await nursery.start(pauses.run)
        pauses.stop()


@pytest.mark.usefixtures("quick_disk")
async def test_pause_is_written_while_the_daemon_runs(
    tmp_path: Path, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    pauses = PauseStore(tmp_path)
    await nursery.start(pauses.run)
    for kept in ([ONE], [ONE, OTHER], [OTHER]):
        pauses.keep(kept)
        await trio.sleep(1)
        assert PauseStore(tmp_path).loaded == tuple(kept)


async def test_pause_that_comes_during_a_write_is_written_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = PauseStore(tmp_path)

    def meanwhile(path: Path, content: bytes) -> None:
        replace_file(path, content)
        trio.from_thread.run_sync(pauses.keep, [OTHER])
        monkeypatch.setattr(module, "replace_file", replace_file)

    monkeypatch.setattr(module, "replace_file", meanwhile)
    pauses.keep([ONE])
    await write_out(pauses)
    assert PauseStore(tmp_path).loaded == (OTHER,)


@pytest.mark.usefixtures("quick_disk")
async def test_full_disk_is_logged_once_and_tried_again(
    tmp_path: Path,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
    disk: list[Exception],
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk += [not_saved(), not_saved()]
    pauses = PauseStore(tmp_path)
    await nursery.start(pauses.run)
    pauses.keep([ONE])
    for _ in range(int(RETRY_S) - 1):
        await trio.sleep(1)
        pauses.heartbeat.probe()  # a look at its loop is no reason to try again
    assert len([each for each in caplog.records if each.levelno == logging.ERROR]) == 1
    assert "it is tried again, and until then a pause ends with the daemon" in caplog.text
    assert PauseStore(tmp_path).loaded == ()
    await trio.sleep(RETRY_S + 2)
    assert PauseStore(tmp_path).loaded == (ONE,)


@pytest.mark.usefixtures("quick_disk")
async def test_write_without_a_thread_is_tried_again(
    tmp_path: Path, nursery: trio.Nursery, autojump_clock: MockClock, no_thread: Shortage
) -> None:
    pauses = PauseStore(tmp_path)
    await nursery.start(pauses.run)
    with no_thread():
        pauses.keep([ONE])
        await trio.sleep(1)
    await trio.sleep(RETRY_S)
    assert PauseStore(tmp_path).loaded == (ONE,)


@pytest.mark.usefixtures("quick_disk")
@pytest.mark.parametrize("refusals", [1, 2])
async def test_refused_write_is_tried_once_more_at_the_stop(
    tmp_path: Path,
    nursery: trio.Nursery,
    disk: list[Exception],
    autojump_clock: MockClock,
    refusals: int,
) -> None:
    disk += [not_saved() for _ in range(refusals)]
    pauses = PauseStore(tmp_path)
    pauses.keep([ONE])
    await nursery.start(pauses.run)
    await wait_all_tasks_blocked()
    assert PauseStore(tmp_path).loaded == ()
    pauses.stop()
    await wait_all_tasks_blocked()
    assert PauseStore(tmp_path).loaded == ((ONE,) if refusals == 1 else ())
    assert trio.current_time() == 0
    assert not disk


async def test_write_that_failed_is_repeated_by_the_next_instance(
    tmp_path: Path, disk: list[Exception]
) -> None:
    disk.append(OSError(errno.EIO, os.strerror(errno.EIO)))
    pauses = PauseStore(tmp_path)
    pauses.keep([ONE])
    with pytest.RaisesGroup(OSError):
        await write_out(pauses)
    await write_out(pauses)
    assert PauseStore(tmp_path).loaded == (ONE,)


@pytest.mark.parametrize("content", [b"", b"{}", b'{"version":3,"pauses":[]}', b"\0" * 64])
def test_damaged_file_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / FILE
    file.write_bytes(content)
    file.chmod(0o600)
    with pytest.raises(StateUnusable, match=f"{file} is damaged.* delete it"):
        PauseStore(tmp_path)


# The service


async def test_next_daemon_goes_on_with_a_pause(
    fakes: Fakes, autojump_clock: MockClock, tmp_path: Path
) -> None:
    fakes.pauses = PauseStore(tmp_path)
    await fakes.open()
    fakes.links.script = [HumanCheck()]
    with pytest.raises(HumanCheck):
        await fakes.convert(fakes.link(1))
    since = (await fakes.service.status()).accounts[fakes.cookie.account].since
    await write_out(fakes.pauses)

    fakes.pauses = PauseStore(tmp_path)
    service = await fakes.open()
    submits = len(fakes.links.submits)
    with pytest.raises(HumanCheck):
        await fakes.convert(fakes.link(2))
    await service.note_synced_cookie(fakes.cookie, None)  # the same one
    with pytest.raises(HumanCheck):
        await fakes.convert(fakes.link(2))
    assert len(fakes.links.submits) == submits
    state = (await service.status()).accounts[fakes.cookie.account]
    assert (state.status, state.since, state.reason) == (
        AccountStatus.PAUSED,
        since,
        str(HumanCheck()),
    )
    await service.note_synced_cookie(parse_cookie(fakes.cookie.header() + "; fresh=1"), None)
    assert await fakes.codes(fakes.link(2)) == [0]
    await write_out(fakes.pauses)
    assert PauseStore(tmp_path).loaded == ()


async def test_mark_that_a_pause_was_notified_is_kept(tmp_path: Path) -> None:
    first = PauseStore(tmp_path)
    first.keep([ONE, OTHER])
    first.mark_notified("1001", OTHER.since)  # of another pause of its
    await write_out(first)
    assert PauseStore(tmp_path).loaded == (ONE, OTHER)
    first.mark_notified("1001", ONE.since)
    first.keep([OTHER, ONE])
    await write_out(first)
    assert PauseStore(tmp_path).loaded == (OTHER, replace(ONE, is_notified=True))
    later = replace(ONE, since=OTHER.since)  # it was paused anew
    first.keep([later])
    await write_out(first)
    assert PauseStore(tmp_path).loaded == (later,)


ROWS = [
    {"account": "1001", "cookie": cookie, "since": "2026-11-21T03:00:00Z"}
    for cookie in ("digest", "another")
]


async def test_file_of_version_01_is_read_and_replaced(tmp_path: Path) -> None:
    file = tmp_path / FILE
    file.write_text(json.dumps({"version": 1, "pauses": ROWS}))
    file.chmod(0o600)
    both = Pause("1001", ("digest", "another"), ONE.since, is_notified=True)
    pauses = PauseStore(tmp_path)
    assert pauses.loaded == (both,)
    pauses.keep([both, OTHER])
    await write_out(pauses)
    assert json.loads(file.read_text())["version"] == 2
    assert PauseStore(tmp_path).loaded == (both, OTHER)


async def test_last_cookies_of_a_pause_are_kept(tmp_path: Path) -> None:
    account = Account("1001", lambda _: None)
    cookies = [parse_cookie(f"SPC_U=1001; SPC_EC={number}") for number in range(MAX_COOKIES + 1)]
    for cookie in cookies:
        account.pause(cookie)
    assert account.current_pause is not None
    assert account.current_pause.cookies == tuple(cookie.digest for cookie in cookies[1:])
