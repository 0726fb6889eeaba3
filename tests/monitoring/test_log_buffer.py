"""The last log records, by level and text."""

from __future__ import annotations

import logging
import os

from smartlinkd.monitoring.log_buffer import LONGEST_MESSAGE, MAX_RECORDS, LogBuffer

logger = logging.getLogger("smartlinkd.tests.log_buffer")


def test_buffer_finds_newest_records_by_level_and_text() -> None:
    buffer = LogBuffer()
    with buffer.attached():
        logger.warning("first thing")
        logger.error("second THING")
        logger.warning("another")
    logger.error("third thing, after the end")
    messages = [record.message for record in buffer.find(level="info", text="thing", limit=9)]
    assert messages == ["second THING", "first thing"]
    assert [each.level for each in buffer.find(level="error", text="", limit=9)] == ["error"]
    assert len(buffer.find(level="info", text="", limit=2)) == 2


def test_buffer_keeps_so_many_records_of_bounded_length() -> None:
    buffer = LogBuffer()
    with buffer.attached():
        for number in range(MAX_RECORDS + 5):
            logger.warning("%d %s", number, "x" * 2 * LONGEST_MESSAGE)
    found = buffer.find(level="debug", text="", limit=2 * MAX_RECORDS)
    assert len(found) == MAX_RECORDS
    assert found[-1].message.startswith("5 ")
    assert max(len(record.message) for record in found) < LONGEST_MESSAGE + 100


def test_record_with_half_a_character_can_be_sent() -> None:
    buffer = LogBuffer()
    with buffer.attached():
        logger.warning("%s cannot be read", os.fsdecode(b"crew\xff"))
    [entry] = buffer.find(level="debug", text="", limit=1)
    assert b"crew\\\\udcff cannot be read" in entry.model_dump_json().encode()
