"""The record and its sealed copy: read back whole, changed by nobody, never shown."""

from __future__ import annotations

import fcntl
import os
import pprint
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from pydantic import ValidationError

from smartlinkd.vault.cookie import MAX_BYTES
from smartlinkd.vault.record import MAX_RECORD, CookieRecord, read_record, sealed_record

SECRET = "hunter2"
F_GET_SEALS = 1034  # linux/fcntl.h
SEALED_FOR_GOOD = 0b1111  # seal, shrink, grow, write


def record(
    cookie_text: str = f"SPC_U=1; SPC_EC={SECRET}", account_name: str = "Shop"
) -> CookieRecord:
    synced_at = datetime(2026, 5, 4, 3, 2, 1, 123456, tzinfo=UTC)
    return CookieRecord(cookie_text=cookie_text, account_name=account_name, synced_at=synced_at)


@pytest.fixture
def descriptor() -> Iterator[int]:
    """The descriptor of a sealed record."""
    descriptor = sealed_record(record())
    yield descriptor
    os.close(descriptor)


@pytest.mark.parametrize(
    "stored",
    [
        record(),
        record(cookie_text='a="b\\c"; d=ü→😀', account_name='Shop "ü" 😀'),
        record(account_name=""),
        record(cookie_text="a=" + "\\" * 4000, account_name="\x01" * 200),
    ],
)
def test_record_is_read_as_it_was_sealed(stored: CookieRecord) -> None:
    descriptor = sealed_record(stored)
    try:
        assert read_record(descriptor) == stored
        assert read_record(descriptor) == stored
    finally:
        os.close(descriptor)


def test_largest_record_has_room() -> None:
    largest = record(cookie_text='a="' + "\\" * (MAX_BYTES - 3), account_name="\x01" * 200)
    assert len(largest.model_dump_json().encode()) < MAX_RECORD


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


def test_error_of_a_broken_record_does_not_show_it() -> None:
    with pytest.raises(ValidationError) as failed:
        CookieRecord.model_validate_json(f'{{"cookie_text": "{SECRET}", "account_name": 1}}')
    assert "account_name" in str(failed.value)
    assert SECRET not in str(failed.value)
    assert SECRET not in repr(failed.value)
