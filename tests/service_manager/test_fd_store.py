"""The cookie in systemd's descriptor store: always the newest, and only a valid record."""

from __future__ import annotations

import os
from datetime import UTC, datetime

import pytest

from smartlinkd.memfd import sealed_file
from smartlinkd.systemd.environment import Descriptor
from smartlinkd.systemd.fd_store import FdStore, is_cookie_name
from smartlinkd.systemd.notify_socket import NotifySocket
from smartlinkd.vault.record import MAX_RECORD, CookieRecord
from tests.fakes.passed_sockets import is_open
from tests.service_manager.conftest import Manager

SECRET = "hunter2"
SYNCED = datetime(2026, 5, 4, 3, 2, 1, 123456, tzinfo=UTC)


def record(secret: str = SECRET, *, text: str = "SPC_U=1; SPC_EC={}") -> CookieRecord:
    cookie_text = text.replace("{}", secret)
    return CookieRecord(cookie_text=cookie_text, account_name="Shop", synced_at=SYNCED)


def content(secret: str = SECRET) -> bytes:
    return record(secret).model_dump_json().encode()


def start(
    manager: Manager, passed: list[Descriptor] | None = None
) -> tuple[FdStore, CookieRecord | None]:
    """Start a process; return its store and the record that it found there.

    systemd passes it the stored descriptors, or a test others.
    """
    if passed is None:
        passed = [Descriptor(name, os.dup(kept)) for name, kept in manager.store.items()]
    store = FdStore(NotifySocket(manager.address), passed)
    return store, store.restore()


def kept_in(manager: Manager) -> list[bytes]:
    manager.listen()
    return [os.pread(descriptor, MAX_RECORD, 0) for descriptor in manager.store.values()]


def test_record_comes_back_and_the_next_is_stored_before_it_is_removed(
    manager: Manager, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    store, found = start(manager)
    assert (found, store.is_kept) == (None, False)
    store.keep(record("0"))
    for number in range(1, 4):
        manager.listen()
        store, found = start(manager)
        assert (found, store.is_kept) == (record(f"{number - 1}"), True)
        store.keep(record(f"{number}"))
    manager.listen()
    told = [next(iter(message.fields)) for message in manager.heard]
    assert told == ["FDSTORE", *["FDSTORE", "FDSTOREREMOVE"] * 6]
    assert kept_in(manager) == [content("3")]
    assert "the cookie synced at 2026-05-04T03:02:01+00:00 is here again" in caplog.text
    assert "SPC_EC" not in caplog.text


def test_newest_record_is_restored_and_the_others_are_removed(manager: Manager) -> None:
    manager.store = {
        "cookie-9": sealed_file("kept", content("old")),
        "cookie-11": sealed_file("kept", content("newest")),
        "cookie-10": sealed_file("kept", content("older")),
    }
    assert start(manager)[1] == record("newest")
    assert kept_in(manager) == [content("newest")]


def test_all_descriptors_that_were_passed_are_closed(manager: Manager) -> None:
    passed = [
        Descriptor("cookie-2", sealed_file("kept", content())),
        Descriptor("cookie-1", sealed_file("kept", b"")),
    ]
    start(manager, passed)
    assert not any(is_open(each.number) for each in passed)


@pytest.mark.parametrize(
    "stored",
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
def test_record_that_is_broken_is_refused_without_showing_it(
    manager: Manager, stored: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    manager.store = {
        "cookie-2": sealed_file("kept", stored),
        "cookie-1": sealed_file("kept", content("before")),
    }
    assert start(manager)[1] == record("before")
    assert kept_in(manager) == [content("before")]
    assert "the stored cookie cookie-2 is refused: there is no cookie in it" in caplog.text
    assert SECRET not in caplog.text


def test_descriptor_that_is_no_memfd_is_refused(
    manager: Manager, caplog: pytest.LogCaptureFixture
) -> None:
    ours, other = os.pipe()
    os.close(other)
    assert start(manager, [Descriptor("cookie-1", ours)])[1] is None
    assert "the stored cookie cookie-1 is refused: " in caplog.text


@pytest.mark.parametrize("cookie_text", ["  a=b;c=d ", "SPC_EC=-", "SPC_EC=x; a=\u2192"])
def test_record_that_an_older_daemon_stored_is_still_read(
    manager: Manager, cookie_text: str
) -> None:
    older = record(text=cookie_text)
    found = Descriptor("cookie-1", sealed_file("kept", older.model_dump_json().encode()))
    assert start(manager, [found])[1] == older


def test_full_queue_delays_the_newest_record_and_keeps_the_old_one_stored(manager: Manager) -> None:
    start(manager)[0].keep(record("first"))
    manager.listen()
    manager.fill()
    store, _ = start(manager)
    for number in range(3):
        store.keep(record(f"{number}"))
    assert not store.is_kept
    assert kept_in(manager) == [content("first")]
    assert not manager.said("FDSTOREREMOVE")
    store.send_pending()
    assert kept_in(manager) == [content("2")]
    assert store.is_kept


def test_full_queue_delays_a_removal(manager: Manager) -> None:
    manager.store = {"cookie-1": sealed_file("kept", b"broken")}
    manager.fill()
    store, _ = start(manager)
    assert len(kept_in(manager)) == 1
    store.send_pending()
    assert kept_in(manager) == []


def test_record_without_a_free_descriptor_is_not_kept(
    manager: Manager,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def full(*_: object) -> int:
        raise OSError(24, "Too many open files")

    store, _ = start(manager)
    store.keep(record("before"))
    with monkeypatch.context() as patched:
        patched.setattr(os, "memfd_create", full)
        store.keep(record())
    assert not store.is_kept
    assert kept_in(manager) == []  # better none than the one before
    assert "the cookie will not outlive the daemon: Too many open files" in caplog.text
    store.keep(record("after"))
    assert kept_in(manager) == [content("after")]


@pytest.mark.parametrize(
    ("name", "is_cookie"),
    [
        ("cookie-1", True),
        *[(name, False) for name in ("cookie-", "cookie-x", "cookie-1 ", "cookie", "http")],
        ("cookie-" + "9" * 19, False),
    ],
)
def test_cookie_name_is_the_word_with_a_number(name: str, is_cookie: bool) -> None:
    assert is_cookie_name(name) is is_cookie
