"""The record's memory: sealed, replaced whole, one descriptor at most, never shown."""

from __future__ import annotations

import fcntl
import os
import pprint
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


def test_memory_without_a_record_returns_none(memory: RecordMemory) -> None:
    assert memory.read() is None


@pytest.mark.parametrize(
    "stored",
    [
        record(),
        record(cookie_text='a="b\\c"; d=ü→😀', account_name='Shop "ü" 😀'),
        record(account_name=""),
    ],
)
def test_record_is_read_as_it_was_written(memory: RecordMemory, stored: CookieRecord) -> None:
    memory.write(stored)
    assert memory.read() == stored
    assert memory.read() == stored


def test_largest_record_is_read_whole(memory: RecordMemory) -> None:
    largest = record(cookie_text='a="' + "\\" * (MAX_BYTES - 3), account_name="\x01" * 200)
    assert len(largest.model_dump_json().encode()) < MAX_RECORD
    memory.write(largest)
    assert memory.read() == largest


def test_new_record_closes_the_descriptor_of_the_last(
    memory: RecordMemory, descriptor: int
) -> None:
    before = len(descriptors())
    for _ in range(50):
        memory.write(record())
    assert len(descriptors()) == before


def test_descriptor_is_closed_with_its_memory() -> None:
    before = descriptors()
    memory = RecordMemory()
    memory.write(record())
    del memory
    assert descriptors() == before


def test_descriptor_is_sealed_and_not_inherited(descriptor: int) -> None:
    assert fcntl.fcntl(descriptor, F_GET_SEALS) == SEALED_FOR_GOOD
    assert not os.get_inheritable(descriptor)


def test_descriptor_cannot_be_written_to(descriptor: int) -> None:
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


def test_record_shows_its_label_and_time_and_nothing_of_its_cookie() -> None:
    stored = record()
    assert stored.cookie.get("SPC_EC") == SECRET  # it is parsed by now
    for shown in (repr(stored), str(stored), f"{stored}", f"{[stored]}", pprint.pformat(stored)):
        assert SECRET not in shown
        assert "Shop" in shown
        assert "2026" in shown


def test_failed_assertion_shows_nothing_of_a_record() -> None:
    with pytest.raises(AssertionError) as failed:
        assert record() == record(cookie_text=f"SPC_EC={SECRET}!")
    assert "CookieRecord" in str(failed.value)
    assert SECRET not in str(failed.value)


def test_error_of_a_broken_record_does_not_show_it() -> None:
    with pytest.raises(ValidationError) as failed:
        CookieRecord.model_validate_json(f'{{"cookie_text": "{SECRET}", "account_name": 1}}')
    assert "account_name" in str(failed.value)
    assert SECRET not in str(failed.value)
    assert SECRET not in repr(failed.value)
