"""The cookie in the store: always one, the newest, and nothing that others may have changed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio

from smartlinkd.systemd.environment import Descriptor
from smartlinkd.systemd.fd_store import FdStore, is_cookie_name
from smartlinkd.systemd.notify_socket import NotifySocket
from smartlinkd.vault.actor import Vault
from smartlinkd.vault.record import MAX_RECORD, CookieRecord, RecordMemory

if TYPE_CHECKING:
    from tests.service_manager.conftest import Manager, MemfdWith

SECRET = "hunter2"
SYNCED = datetime(2026, 5, 4, 3, 2, 1, 123456, tzinfo=UTC)


def record(secret: str = SECRET) -> CookieRecord:
    return CookieRecord(
        cookie_text=f"SPC_U=1; SPC_EC={secret}", account_name="Shop", synced_at=SYNCED
    )


def content(secret: str = SECRET) -> bytes:
    return record(secret).model_dump_json().encode()


class Life:
    """One process of the daemon, as far as the cookie goes."""

    def __init__(self, manager: Manager, found: list[Descriptor] | None = None) -> None:
        """What it finds is what the store has, or what is said to be `found` there."""
        if found is None:
            found = [Descriptor(name, os.dup(kept)) for name, kept in manager.store.items()]
        self.store = FdStore(NotifySocket(manager.address), found)
        self.memory = RecordMemory(self.store)
        self.found = self.store.restore()
        if self.found is not None:
            self.memory.write(self.found)

    def end(self) -> None:
        self.memory.close()


@pytest.fixture
def live(manager: Manager) -> Iterator[Callable[..., Life]]:
    lives = []

    def live(found: list[Descriptor] | None = None) -> Life:
        lives.append(Life(manager, found))
        return lives[-1]

    yield live
    for each in lives:
        each.end()


def kept_in(manager: Manager) -> list[bytes]:
    manager.listen()
    return [os.pread(descriptor, MAX_RECORD, 0) for descriptor in manager.store.values()]


def open_files() -> set[int]:
    """What the process has open, by the numbers of the files."""
    files = set()
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the one that listed the folder
            files.add(entry.stat().st_ino)
    return files


# On every change


def test_the_record_goes_to_the_store(manager: Manager, live: Callable[..., Life]) -> None:
    life = live()
    assert not life.store.is_kept
    life.memory.write(record())
    assert kept_in(manager) == [content()]
    assert life.store.is_kept


def test_each_change_is_in_before_the_one_before_is_out(
    manager: Manager, live: Callable[..., Life]
) -> None:
    life = live()
    for number in range(5):
        life.memory.write(record(f"{number}"))
    manager.listen()
    told = [next(iter(each.fields)) for each in manager.heard]
    assert told == ["FDSTORE", *["FDSTORE", "FDSTOREREMOVE"] * 4]
    assert kept_in(manager) == [content("4")]


def test_the_manager_is_not_to_wait_for_its_end(
    manager: Manager, live: Callable[..., Life]
) -> None:
    live().memory.write(record())
    assert manager.said("FDPOLL") == ["0"]


def test_what_is_stored_is_the_vaults_own_memfd(
    manager: Manager, live: Callable[..., Life]
) -> None:
    life = live()
    life.memory.write(record())
    manager.listen()
    (kept,) = manager.store.values()
    ours = life.memory._descriptor
    assert ours is not None
    assert os.fstat(kept).st_ino == os.fstat(ours).st_ino


# At the next start


def test_it_comes_back(
    manager: Manager, live: Callable[..., Life], caplog: pytest.LogCaptureFixture
) -> None:
    live().memory.write(record())
    manager.listen()
    caplog.set_level("INFO")
    after = live()
    assert after.found == record()
    assert after.memory.read() == record()
    assert kept_in(manager) == [content()]
    assert after.store.is_kept
    assert "the cookie synced at 2026-05-04T03:02:01+00:00 is here again" in caplog.text
    assert SECRET not in caplog.text


def test_it_is_stored_all_the_time_from_one_process_to_the_next(
    manager: Manager, live: Callable[..., Life]
) -> None:
    live().memory.write(record("0"))
    for number in range(1, 4):
        manager.listen()
        life = live()
        life.memory.write(record(f"{number}"))
    manager.listen()
    count = 0
    for message in manager.heard:
        count += ("FDSTORE" in message.fields) - ("FDSTOREREMOVE" in message.fields)
        assert 1 <= count <= 2
    assert kept_in(manager) == [content("3")]


def test_the_newest_counts_and_the_others_go(
    manager: Manager, live: Callable[..., Life], memfd_with: MemfdWith
) -> None:
    manager.store = {
        "cookie-9": memfd_with(content("old")),
        "cookie-11": memfd_with(content("newest")),
        "cookie-10": memfd_with(content("older")),
    }
    assert live().found == record("newest")
    assert kept_in(manager) == [content("newest")]


def test_two_of_the_same_name_leave_one(
    manager: Manager, live: Callable[..., Life], memfd_with: MemfdWith
) -> None:
    found = [Descriptor("cookie-3", memfd_with(content(name))) for name in "ab"]
    assert live(found).found in (record("a"), record("b"))
    assert manager.said("FDSTOREREMOVE") == ["1"]
    assert len(kept_in(manager)) == 1


def test_there_is_none_after_a_stop(live: Callable[..., Life]) -> None:
    assert live().found is None


def test_all_that_came_is_closed(live: Callable[..., Life], memfd_with: MemfdWith) -> None:
    came = {"cookie-2": memfd_with(content()), "cookie-1": memfd_with(b"")}
    files = {os.fstat(descriptor).st_ino for descriptor in came.values()}
    live([Descriptor(name, descriptor) for name, descriptor in came.items()])
    assert not files & open_files()


# What is not trusted


@pytest.mark.parametrize("missing", [0b0001, 0b0010, 0b0100, 0b1000])
def test_what_may_still_be_changed_is_refused(
    manager: Manager,
    live: Callable[..., Life],
    memfd_with: MemfdWith,
    missing: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    manager.store = {"cookie-1": memfd_with(content(), seals=0b1111 & ~missing)}
    assert live().found is None
    assert "the stored cookie cookie-1 is refused: it is not sealed" in caplog.text
    assert SECRET not in caplog.text
    assert kept_in(manager) == []


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        SECRET.encode(),
        content()[:-1],
        content().replace(b"SPC_U=1; SPC_EC=", b""),
        content().replace(b"account_name", b"account"),
        b'"\xff"',
    ],
    ids=["empty", "no JSON", "cut", "no cookie", "no record", "no text"],
)
def test_a_broken_one_is_refused_without_showing_it(
    manager: Manager,
    live: Callable[..., Life],
    memfd_with: MemfdWith,
    broken: bytes,
    caplog: pytest.LogCaptureFixture,
) -> None:
    manager.store = {"cookie-1": memfd_with(broken)}
    assert live().found is None
    assert "cookie-1 is refused: there is no stored cookie in it" in caplog.text
    assert SECRET not in caplog.text
    assert kept_in(manager) == []


def test_one_that_is_too_large_is_refused(
    manager: Manager,
    live: Callable[..., Life],
    memfd_with: MemfdWith,
    caplog: pytest.LogCaptureFixture,
) -> None:
    manager.store = {"cookie-1": memfd_with(content() + b" " * MAX_RECORD)}
    assert live().found is None
    assert f"bytes, and a record at most {MAX_RECORD}" in caplog.text


def test_what_is_no_memfd_is_refused(
    live: Callable[..., Life], caplog: pytest.LogCaptureFixture
) -> None:
    ours, other = os.pipe()
    os.close(other)
    assert live([Descriptor("cookie-1", ours)]).found is None
    assert "the stored cookie cookie-1 is refused: it " in caplog.text


def test_a_sound_one_behind_a_broken_one_is_found(
    manager: Manager, live: Callable[..., Life], memfd_with: MemfdWith
) -> None:
    manager.store = {
        "cookie-2": memfd_with(content("newest"), seals=0),
        "cookie-1": memfd_with(content("before")),
    }
    assert live().found == record("before")
    assert kept_in(manager) == [content("before")]


# When the manager does not listen


def fill(notify_socket: NotifySocket) -> None:
    while notify_socket.send("STATUS=again"):
        pass


def test_what_could_not_be_sent_is_sent_later_newest_alone(
    manager: Manager, live: Callable[..., Life]
) -> None:
    life = live()
    life.memory.write(record("first"))
    fill(NotifySocket(manager.address))
    for number in range(3):
        life.memory.write(record(f"{number}"))
    assert not life.store.is_kept
    assert kept_in(manager) == [content("first")]
    life.store.send_pending()
    assert kept_in(manager) == [content("2")]
    assert life.store.is_kept


def test_the_old_one_stays_until_the_new_one_is_in(
    manager: Manager, live: Callable[..., Life]
) -> None:
    live().memory.write(record())
    manager.listen()
    fill(NotifySocket(manager.address))
    life = live()
    assert kept_in(manager) == [content()]
    assert not manager.said("FDSTOREREMOVE")
    life.store.send_pending()
    assert kept_in(manager) == [content()]
    assert manager.said("FDSTOREREMOVE") == ["1"]


def test_a_removal_that_could_not_be_sent_is_sent_later(
    manager: Manager, live: Callable[..., Life], memfd_with: MemfdWith
) -> None:
    manager.store = {"cookie-1": memfd_with(b"broken")}
    fill(NotifySocket(manager.address))
    life = live()
    assert len(kept_in(manager)) == 1
    life.store.send_pending()
    assert kept_in(manager) == []


def test_without_room_for_a_descriptor_the_daemon_goes_on(
    manager: Manager,
    live: Callable[..., Life],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def full(_: int) -> int:
        raise OSError(24, "Too many open files")

    life = live()
    life.memory.write(record("before"))
    with monkeypatch.context() as patched:
        patched.setattr("os.dup", full)
        life.memory.write(record())
    assert life.memory.read() == record()
    assert not life.store.is_kept
    assert kept_in(manager) == []  # better none than the one before
    assert "the cookie will not outlive the daemon: Too many open files" in caplog.text
    life.memory.write(record("after"))
    assert kept_in(manager) == [content("after")]


@pytest.mark.parametrize("cookie_text", ["  a=b;c=d ", "SPC_EC=-", "SPC_EC=x; a=\u2192"])
def test_cookie_that_an_older_daemon_stored_is_still_read(
    manager: Manager, live: Callable[..., Life], memfd_with: MemfdWith, cookie_text: str
) -> None:
    older = CookieRecord(cookie_text=cookie_text, account_name="Shop", synced_at=SYNCED)
    found = Descriptor("cookie-1", memfd_with(older.model_dump_json().encode()))
    assert live([found]).found == older


def test_without_a_manager_nothing_is_kept_and_nothing_is_open() -> None:
    store = FdStore(NotifySocket(""), ())
    memory = RecordMemory(store)
    assert store.restore() is None
    memory.write(record())
    assert not store.is_kept
    assert memory.read() == record()
    memory.close()


# Around it


@pytest.mark.parametrize(
    "name", ["cookie-", "cookie-x", "cookie-1 ", "cookie", "http", "cookie-" + "9" * 19]
)
def test_what_is_not_its_name(name: str) -> None:
    assert is_cookie_name("cookie-1")
    assert not is_cookie_name(name)


async def test_the_vault_begins_with_it_and_keeps_it(
    manager: Manager, nursery: trio.Nursery, memfd_with: MemfdWith
) -> None:
    manager.store = {"cookie-1": memfd_with(content())}
    store = FdStore(
        NotifySocket(manager.address), [Descriptor("cookie-1", os.dup(manager.store["cookie-1"]))]
    )
    vault = Vault(descriptor_store=store, record=store.restore())
    await nursery.start(vault.run)
    assert await vault.current() == record()
    await vault.store(f"SPC_U=1; SPC_EC={SECRET}2", "Shop")
    assert SECRET.encode() + b"2" in kept_in(manager)[0]
    vault._memory.close()
