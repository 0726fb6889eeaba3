"""The record's memory: sealed, replaced whole, one descriptor at the most, never shown."""

from __future__ import annotations

import errno
import fcntl
import os
import pprint
import weakref
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pydantic import ValidationError

from smartlinkd.vault.cookie import MAX_BYTES
from smartlinkd.vault.record import MAX_RECORD, CookieRecord, RecordMemory

SECRET = "hunter2"
F_GET_SEALS = 1034  # linux/fcntl.h
SEALED_FOR_GOOD = 0b1111  # seal, shrink, grow, write


def record(
    cookie_text: str = f"SPC_U=1; SPC_EC={SECRET}", account_name: str = "Shop"
) -> CookieRecord:
    synced_at = datetime(2026, 5, 4, 3, 2, 1, 123456, tzinfo=UTC)
    return CookieRecord(cookie_text=cookie_text, account_name=account_name, synced_at=synced_at)


def descriptors() -> list[int]:
    """The open memfds of cookies, of the whole process."""
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = entry.readlink()
        except FileNotFoundError:  # the one that listed the folder
            continue
        if str(target).startswith("/memfd:cookie"):
            found.append(int(entry.name))
    return found


@pytest.fixture
def memory() -> Iterator[RecordMemory]:
    before = set(descriptors())
    memory = RecordMemory()
    yield memory
    memory.close()
    assert set(descriptors()) == before


@pytest.fixture
def descriptor(memory: RecordMemory) -> int:
    """The descriptor of a stored record."""
    before = set(descriptors())
    memory.write(record())
    (descriptor,) = set(descriptors()) - before
    return descriptor


def test_there_is_no_record_before_the_first(memory: RecordMemory) -> None:
    assert memory.read() is None


@pytest.mark.parametrize(
    "stored",
    [
        record(),
        record(cookie_text='a="b\\c"; d=ü→😀', account_name='Shop "ü" 😀'),
        record(account_name=""),
    ],
)
def test_what_was_written_is_read(memory: RecordMemory, stored: CookieRecord) -> None:
    memory.write(stored)
    assert memory.read() == stored
    assert memory.read() == stored


def test_the_largest_record_is_read_whole(memory: RecordMemory) -> None:
    largest = record(cookie_text='a="' + "\\" * (MAX_BYTES - 3), account_name="\x01" * 200)
    assert len(largest.model_dump_json().encode()) < MAX_RECORD
    memory.write(largest)
    assert memory.read() == largest


def test_a_record_replaces_the_one_before(memory: RecordMemory) -> None:
    memory.write(record(account_name="a much longer name than the next one"))
    memory.write(record(account_name="short"))
    read = memory.read()
    assert read is not None
    assert read.account_name == "short"


def test_a_closed_memory_has_no_record(memory: RecordMemory) -> None:
    memory.write(record())
    memory.close()
    assert memory.read() is None


def test_each_record_closes_the_descriptor_of_the_one_before(
    memory: RecordMemory, descriptor: int
) -> None:
    before = len(descriptors())
    for _ in range(50):
        memory.write(record())
    assert len(descriptors()) == before


def test_the_descriptor_ends_with_the_memory() -> None:
    before = descriptors()
    memory = RecordMemory()
    memory.write(record())
    del memory
    assert descriptors() == before


def test_it_is_sealed_for_good(descriptor: int) -> None:
    assert fcntl.fcntl(descriptor, F_GET_SEALS) == SEALED_FOR_GOOD


def test_nobody_can_write_to_it(descriptor: int) -> None:
    with pytest.raises(PermissionError):
        os.write(descriptor, b"x")
    again = os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR)
    try:
        with pytest.raises(PermissionError):
            os.pwrite(again, b"x", 0)
        with pytest.raises(PermissionError):
            os.ftruncate(again, 0)
    finally:
        os.close(again)


def test_no_child_process_inherits_it(descriptor: int) -> None:
    assert not os.get_inheritable(descriptor)


@pytest.mark.parametrize("call", ["fcntl.fcntl", "os.fdopen"])
def test_a_write_that_fails_keeps_the_old_record_and_leaks_nothing(
    memory: RecordMemory, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "no")

    memory.write(record(account_name="old"))
    before = descriptors()
    monkeypatch.setattr(call, fail)
    with pytest.raises(OSError, match="no"):
        memory.write(record(account_name="new"))
    monkeypatch.undo()
    assert descriptors() == before
    read = memory.read()
    assert read is not None
    assert read.account_name == "old"


def test_a_record_holds_its_parsed_cookie() -> None:
    stored = record(cookie_text="a=1; b=2")
    assert stored.cookie.get("b") == "2"
    assert stored.cookie is stored.cookie


def test_the_parsed_cookie_goes_with_its_record(memory: RecordMemory) -> None:
    """And is neither kept with it elsewhere, nor what tells it from another one."""
    stored = record()
    text = stored.model_dump_json()
    cookie = weakref.ref(stored.cookie)
    assert stored == record()
    assert stored.model_dump_json() == text
    memory.write(stored)
    del stored
    assert cookie() is None


def test_a_record_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        record().cookie_text = "a=b"


def test_a_record_shows_its_label_and_time_and_nothing_of_its_cookie() -> None:
    stored = record()
    assert stored.cookie.get("SPC_EC") == SECRET  # it is parsed by now
    for shown in (repr(stored), str(stored), f"{stored}", f"{[stored]}", pprint.pformat(stored)):
        assert SECRET not in shown
        assert "Shop" in shown
        assert "2026" in shown


def test_a_failed_assertion_shows_nothing_of_a_records_cookie() -> None:
    with pytest.raises(AssertionError) as failed:
        assert record() == record(cookie_text=f"SPC_EC={SECRET}!")
    assert "CookieRecord" in str(failed.value)
    assert SECRET not in str(failed.value)


def test_a_broken_record_is_not_shown_by_its_error() -> None:
    with pytest.raises(ValidationError) as failed:
        CookieRecord.model_validate_json(f'{{"cookie_text": "{SECRET}", "account_name": 1}}')
    assert "account_name" in str(failed.value)
    assert SECRET not in str(failed.value)
    assert SECRET not in repr(failed.value)
