"""A pause outlasts the process: what is on the disk, when, and what the next desk makes of it."""

from __future__ import annotations

import errno
import json
import logging
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.conversion import pauses as module
from smartlinkd.conversion.account import Account, Standing
from smartlinkd.conversion.pauses import FILE, MOST_COOKIES, RETRY, UNTOLD_FILE, Pause, Pauses
from smartlinkd.marketplace.errors import HumanCheck
from smartlinkd.state_files import NotSaved, StateUnusable, replace_file
from smartlinkd.vault.cookie import parse_cookie
from tests.fakes.threads import threads_in_place
from tests.shortage import Shortage

if TYPE_CHECKING:
    from tests.conversion.conftest import Bench

ONE = Pause("1001", ("digest",), datetime(2026, 11, 21, 3, 0, tzinfo=UTC))
OTHER = Pause("open api", (None,), datetime(2026, 11, 21, 4, 0, tzinfo=UTC))
FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

Write = Callable[[Path, bytes], None]


@pytest.fixture
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes no time: a mock clock does not wait for threads."""
    threads_in_place(monkeypatch)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> list[Exception]:
    """What the next writes end with, the first first; then they work again."""
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


@pytest.fixture
async def refused(
    tmp_path: Path, nursery: trio.Nursery, disk: list[Exception], quick_disk: None
) -> Pauses:
    """At work; the disk has refused the first that it was to keep, and now works again."""
    disk.append(not_saved())
    pauses = Pauses(tmp_path)
    pauses.keep([ONE])
    await nursery.start(pauses.run)
    await wait_all_tasks_blocked()
    assert Pauses(tmp_path).kept == ()
    return pauses


async def write_out(pauses: Pauses) -> None:
    """One life of its task, which is told to stop at once."""
    async with trio.open_nursery() as nursery:
        await nursery.start(pauses.run)
        pauses.stop()


async def test_what_is_kept_is_there_at_the_next_start(tmp_path: Path) -> None:
    first = Pauses(tmp_path)
    assert first.kept == ()
    first.keep([ONE, OTHER])
    await write_out(first)
    second = Pauses(tmp_path)
    assert second.kept == (ONE, OTHER)
    second.keep([])
    await write_out(second)
    assert Pauses(tmp_path).kept == ()
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600


async def test_as_many_pauses_as_accounts_that_are_known_are_there_again(tmp_path: Path) -> None:
    cookies = tuple(f"{number:064x}" for number in range(MOST_COOKIES))
    many = [Pause(f"{number:04096}", cookies, ONE.since) for number in range(256)]
    pauses = Pauses(tmp_path)
    pauses.keep(many)
    await write_out(pauses)
    assert Pauses(tmp_path).kept == tuple(many)


@pytest.mark.usefixtures("quick_disk")
async def test_it_is_written_while_the_daemon_runs(tmp_path: Path, nursery: trio.Nursery) -> None:
    pauses = Pauses(tmp_path)
    await nursery.start(pauses.run)
    for kept in ([ONE], [ONE, OTHER], [OTHER]):
        pauses.keep(kept)
        await trio.sleep(1)
        assert Pauses(tmp_path).kept == tuple(kept)


async def test_without_a_pause_there_is_no_file(tmp_path: Path) -> None:
    await write_out(Pauses(tmp_path))
    assert not (tmp_path / FILE).exists()


async def test_what_comes_while_it_is_written_is_written_before_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = Pauses(tmp_path)

    def meanwhile(path: Path, content: bytes) -> None:
        replace_file(path, content)
        trio.from_thread.run_sync(pauses.keep, [OTHER])
        monkeypatch.setattr(module, "replace_file", replace_file)

    monkeypatch.setattr(module, "replace_file", meanwhile)
    pauses.keep([ONE])
    await write_out(pauses)
    assert Pauses(tmp_path).kept == (OTHER,)


@pytest.mark.usefixtures("quick_disk")
async def test_a_full_disk_is_told_and_tried_again(
    tmp_path: Path,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
    disk: list[Exception],
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk += [not_saved(), not_saved()]
    pauses = Pauses(tmp_path)
    await nursery.start(pauses.run)
    pauses.keep([ONE])
    for _ in range(int(RETRY) - 1):
        await trio.sleep(1)
        pauses.heartbeat.probe()  # a look at its loop is no reason to try again
    assert len([each for each in caplog.records if each.levelno == logging.ERROR]) == 1
    assert "it is tried again, and until then a pause ends with the daemon" in caplog.text
    assert Pauses(tmp_path).kept == ()
    await trio.sleep(RETRY + 2)
    assert Pauses(tmp_path).kept == (ONE,)


@pytest.mark.usefixtures("quick_disk")
async def test_with_no_thread_to_be_had_it_is_tried_again(
    tmp_path: Path, nursery: trio.Nursery, autojump_clock: MockClock, no_thread: Shortage
) -> None:
    pauses = Pauses(tmp_path)
    await nursery.start(pauses.run)
    with no_thread():
        pauses.keep([ONE])
        await trio.sleep(1)
    await trio.sleep(RETRY)
    assert Pauses(tmp_path).kept == (ONE,)


@pytest.mark.usefixtures("quick_disk")
async def test_a_full_disk_holds_up_no_end(
    tmp_path: Path, disk: list[Exception], autojump_clock: MockClock
) -> None:
    disk += [not_saved() for _ in range(100)]
    pauses = Pauses(tmp_path)
    pauses.keep([ONE])
    await write_out(pauses)
    assert trio.current_time() < 1


async def test_what_the_disk_has_refused_is_tried_once_more_before_the_end(
    tmp_path: Path, refused: Pauses, autojump_clock: MockClock
) -> None:
    refused.stop()
    await wait_all_tasks_blocked()
    assert Pauses(tmp_path).kept == (ONE,)


async def test_what_comes_after_a_refusal_does_not_wait_for_the_next_try(
    tmp_path: Path, refused: Pauses, autojump_clock: MockClock
) -> None:
    refused.keep([ONE, OTHER])
    await wait_all_tasks_blocked()
    assert Pauses(tmp_path).kept == (ONE, OTHER)


async def test_what_the_disk_may_have_lost_is_written_by_the_next_incarnation(
    tmp_path: Path, disk: list[Exception]
) -> None:
    disk.append(OSError(errno.EIO, os.strerror(errno.EIO)))
    pauses = Pauses(tmp_path)
    pauses.keep([ONE])
    with pytest.RaisesGroup(OSError):
        await write_out(pauses)
    await write_out(pauses)
    assert Pauses(tmp_path).kept == (ONE,)


async def test_its_loop_comes_round_when_it_is_prompted(
    tmp_path: Path, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    pauses = Pauses(tmp_path)
    await nursery.start(pauses.run)
    await trio.sleep(100)
    assert pauses.heartbeat.last < 100
    pauses.heartbeat.probe()
    await wait_all_tasks_blocked()
    assert pauses.heartbeat.last >= 100


@pytest.mark.parametrize("name", [FILE, UNTOLD_FILE])
@pytest.mark.parametrize("content", [b"", b"{}", b'{"version":2,"pauses":[]}', b"\0" * 64])
def test_a_damaged_file_is_not_taken_for_none(tmp_path: Path, content: bytes, name: str) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    file.chmod(0o600)
    with pytest.raises(StateUnusable, match=f"{file} is damaged.* delete it"):
        Pauses(tmp_path)


# The desk


async def test_the_next_daemon_goes_on_with_a_pause(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock, tmp_path: Path
) -> None:
    bench.pauses = Pauses(tmp_path)
    await bench.open(nursery)
    bench.links.script = [HumanCheck()]
    with pytest.raises(HumanCheck):
        await bench.convert(bench.link(1))
    since = (await bench.desk.status()).accounts[bench.cookie.account].since
    await write_out(bench.pauses)

    bench.pauses = Pauses(tmp_path)
    desk = await bench.open(nursery)
    submits = len(bench.links.submits)
    with pytest.raises(HumanCheck):
        await bench.convert(bench.link(2))
    await desk.cookie_synced(bench.cookie, None)  # the same one
    with pytest.raises(HumanCheck):
        await bench.convert(bench.link(2))
    assert len(bench.links.submits) == submits
    state = (await desk.status()).accounts[bench.cookie.account]
    assert (state.standing, state.since, state.reason) == (
        Standing.PAUSED,
        since,
        str(HumanCheck()),
    )
    await desk.cookie_synced(parse_cookie(bench.cookie.header() + "; fresh=1"), None)
    assert await bench.codes(bench.link(2)) == [0]
    await write_out(bench.pauses)
    assert Pauses(tmp_path).kept == ()


async def test_no_cookie_that_has_met_a_check_ends_the_pause_in_the_next_daemon_either(
    tmp_path: Path,
) -> None:
    cookies = [parse_cookie(f"SPC_U=1001; SPC_EC={each}") for each in ("one", "another", "new")]
    pauses = Pauses(tmp_path)

    def keep(account: Account) -> None:
        pause = account.pause_to_keep
        pauses.keep([pause] if pause else [])

    account = Account("1001", keep)
    for cookie in cookies[:2]:  # the second was under way when the first met it
        account.pause(HumanCheck(), cookie)
    await write_out(pauses)

    (kept,) = Pauses(tmp_path).kept
    again = Account.from_earlier_process(kept, lambda _: None)
    standing = []
    for cookie in cookies:
        again.cookie_synced(cookie, None)
        standing.append(again.state.standing)
    assert standing == [Standing.PAUSED, Standing.PAUSED, Standing.ACTIVE]


async def test_whether_the_owner_knows_of_a_pause_is_there_at_the_next_start(
    tmp_path: Path,
) -> None:
    first = Pauses(tmp_path)
    first.keep([ONE, OTHER])
    first.owner_knows("1001", OTHER.since)  # of another pause of its
    await write_out(first)
    assert Pauses(tmp_path).kept == (ONE, OTHER)
    first.owner_knows("1001", ONE.since)
    first.keep([OTHER, ONE])
    await write_out(first)
    assert Pauses(tmp_path).kept == (OTHER, replace(ONE, told=True))
    later = replace(ONE, since=OTHER.since)  # it was paused anew
    first.keep([later])
    await write_out(first)
    assert Pauses(tmp_path).kept == (later,)


async def test_an_upgrade_can_be_taken_back(tmp_path: Path) -> None:
    """What an earlier version refuses is in a file that it does not know, and the other way round
    a pause of its own is one that was told."""
    pauses = Pauses(tmp_path)
    two = Pause("1001", ("digest", "another"), ONE.since)
    pauses.keep([two])
    await write_out(pauses)
    row = {"account": "1001", "since": "2026-11-21T03:00:00Z"}
    rows = [row | {"cookie": cookie} for cookie in ("digest", "another")]
    assert json.loads((tmp_path / FILE).read_text()) == {"version": 1, "pauses": rows}
    (tmp_path / UNTOLD_FILE).unlink()
    assert Pauses(tmp_path).kept == (replace(two, told=True),)


async def test_of_too_many_cookies_the_last_are_kept(tmp_path: Path) -> None:
    account = Account("1001", lambda _: None)
    cookies = [parse_cookie(f"SPC_U=1001; SPC_EC={number}") for number in range(MOST_COOKIES + 1)]
    for cookie in cookies:
        account.pause(HumanCheck(), cookie)
    assert account.pause_to_keep is not None
    assert account.pause_to_keep.cookies == tuple(cookie.digest for cookie in cookies[1:])


async def test_the_owner_ends_a_pause_of_the_daemon_before(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock, tmp_path: Path
) -> None:
    before = Pauses(tmp_path)
    before.keep([Pause(bench.cookie.account, (bench.cookie.digest,), ONE.since), OTHER])
    await write_out(before)
    bench.pauses = Pauses(tmp_path)
    desk = await bench.open(nursery)
    assert await desk.clear_accounts() == 2
    assert await bench.codes(bench.link(1)) == [0]
    await write_out(bench.pauses)
    assert Pauses(tmp_path).kept == ()
