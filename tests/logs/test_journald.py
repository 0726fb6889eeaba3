"""The journal's native protocol, and records that the journal does not take."""

from __future__ import annotations

import io
import logging
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import pytest

from smartlinkd import logs
from smartlinkd.logs import LogContext, LogEvent, bind_log_actor, bind_log_contexts
from smartlinkd.logs.journald import is_journal

if TYPE_CHECKING:
    from tests.logs.conftest import Entry, Journal

logger = logging.getLogger("smartlinkd.test")

FORGED = "x\nPRIORITY=0\nMESSAGE=forged\n\n\x00\x1b[2J\r\udcff"


@pytest.fixture
def stream() -> Iterator[TextIO]:
    """A service's standard error: a stream socket whose lines the journal reads."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with ours, theirs, os.fdopen(os.dup(ours.fileno()), "w") as stream:
        yield stream
        with pytest.raises(BlockingIOError):  # records go to the journal alone
            theirs.recv(1, socket.MSG_DONTWAIT)


def identity(stream: TextIO) -> str:
    """Return the stream's name in `JOURNAL_STREAM`."""
    status = os.fstat(stream.fileno())
    return f"{status.st_dev}:{status.st_ino}"


@pytest.fixture
def logging_to(stream: TextIO, journal: Journal) -> Journal:
    environ = {"JOURNAL_STREAM": identity(stream)}
    logs.set_up("debug", stream, environ, journal_socket=str(journal.path))
    return journal


def only_entry(journal: Journal) -> Entry:
    (entry,) = journal.read()
    return entry


def test_record_is_an_entry_of_fields(logging_to: Journal) -> None:
    with (
        bind_log_actor("conversion"),
        bind_log_contexts((LogContext("r1", "post", "k1"), LogContext("r2"))),
    ):
        logger.warning("account %s, giá", "7", extra=LogEvent.ACCOUNT_PAUSED(account="7"))
    entry = only_entry(logging_to)
    assert int(entry.pop("CODE_LINE")[0]) > 0
    assert entry == {
        "MESSAGE": ["account 7, giá".encode()],
        "PRIORITY": [b"4"],
        "SYSLOG_IDENTIFIER": [b"smartlinkd"],
        "LOGGER": [b"smartlinkd.test"],
        "EVENT": [b"account_paused"],
        "MESSAGE_ID": [LogEvent.ACCOUNT_PAUSED.message_id.encode()],
        "ACTOR": [b"conversion"],
        "REQUEST_ID": [b"r1", b"r2"],
        "CREW": [b"post"],
        "KICKOFF_ID": [b"k1"],
        "ACCOUNT": [b"7"],
        "CODE_FILE": [__file__.encode()],
        "CODE_FUNC": [b"test_record_is_an_entry_of_fields"],
    }


@pytest.mark.parametrize(
    ("level", "priority"),
    [("debug", b"7"), ("info", b"6"), ("warning", b"4"), ("error", b"3"), ("critical", b"2")],
)
def test_levels_are_syslog_priorities(logging_to: Journal, level: str, priority: bytes) -> None:
    getattr(logger, level)("x")
    assert only_entry(logging_to)["PRIORITY"] == [priority]


def test_value_forges_no_field_and_no_entry(logging_to: Journal) -> None:
    with bind_log_contexts((LogContext(request_id=FORGED, crew=FORGED),)):
        logger.info("%s", FORGED, extra=LogEvent.STARTED(account=FORGED))
    entry = only_entry(logging_to)
    as_sent = FORGED.encode(errors="backslashreplace")
    for name in ("REQUEST_ID", "CREW", "ACCOUNT"):
        assert entry[name] == [as_sent]
    shown = b"x\nPRIORITY=0\nMESSAGE=forged\n\n\\x00\\x1b[2J\\x0d\\udcff"
    assert entry["MESSAGE"] == [shown]
    assert entry["PRIORITY"] == [b"6"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\rb\x1b[2K\nc\td", "a\\x0db\\x1b[2K\nc\td"),
        ("\x7f\x9b2J", "\\x7f\\x9b2J"),
        ("a\u2028b\u202ec\u2066d", "a\\u2028b\\u202ec\\u2066d"),
        ("a\uffffb\ufdd0c\U0001fffe", "a\\uffffb\\ufdd0c\\u1fffe"),
        ("giá 5\u00a0₫", "giá 5\u00a0₫"),
    ],
)
def test_message_has_no_control_characters(logging_to: Journal, text: str, shown: str) -> None:
    """`journalctl` hides a text with a control character other than line end and tab."""
    logger.info("%s", text)
    assert only_entry(logging_to)["MESSAGE"] == [shown.encode()]
    logger.error("failed", exc_info=ValueError(text))
    failed = only_entry(logging_to)["MESSAGE"][0].decode()
    assert all(each.isprintable() or each in "\n\t\u00a0" for each in failed)


def test_exception_is_a_field_of_its_own(logging_to: Journal) -> None:
    both = ExceptionGroup("both", [ValueError("first\nline"), KeyError("second")])
    logger.error("http failed", exc_info=both)
    entry = only_entry(logging_to)
    assert entry["MESSAGE"] == [b"http failed: ValueError: first line (and 1 more)"]
    trace = entry["EXCEPTION"][0].decode()
    assert trace.startswith("  | ExceptionGroup: both")
    assert "KeyError: 'second'" in trace
    assert entry["PRIORITY"] == [b"3"]


@pytest.mark.parametrize("is_full", [True, False], ids=["full", "restarted"])
def test_records_that_the_journal_does_not_take_are_counted_and_logged_once(
    logging_to: Journal, *, is_full: bool
) -> None:
    if not is_full:
        logging_to.stop()
    for number in range(600):
        logger.info("record %d", number)
    if not is_full:
        logging_to.start()
    taken = [entry["MESSAGE"][0].decode() for entry in logging_to.read()]
    assert taken == [f"record {number}" for number in range(len(taken))]
    logger.info("after")
    after, lost = logging_to.read()
    assert after["MESSAGE"] == [b"after"]
    text = f"{600 - len(taken)} log records are lost: the journal did not take them"
    assert lost["MESSAGE"] == [text.encode()]
    assert lost["MESSAGE_ID"] == [LogEvent.RECORDS_LOST.message_id.encode()]
    logger.info("later")
    assert only_entry(logging_to)["MESSAGE"] == [b"later"]  # the loss is logged once


def test_faulty_record_does_not_stop_the_next(logging_to: Journal) -> None:
    before, logging.raiseExceptions = logging.raiseExceptions, False
    try:
        logger.info("%d", "no number")
    finally:
        logging.raiseExceptions = before
    logger.info("after")
    assert only_entry(logging_to)["MESSAGE"] == [b"after"]


def test_longest_record_fits_into_a_datagram(logging_to: Journal) -> None:
    logger.error("%s", "😀" * 100_000, exc_info=ValueError("😀" * 100_000))
    assert len(only_entry(logging_to)["EXCEPTION"][0]) > 4 * 32_000


def test_journal_is_recognized_by_its_own_stream_alone(stream: TextIO, tmp_path: Path) -> None:
    ours = identity(stream)
    assert is_journal(stream, {"JOURNAL_STREAM": ours})
    for other in ({}, {"JOURNAL_STREAM": ""}, {"JOURNAL_STREAM": f"{ours}1"}):
        assert not is_journal(stream, other)
    assert not is_journal(io.StringIO(), {"JOURNAL_STREAM": ours})
    with (tmp_path / "log").open("w") as file:
        assert not is_journal(file, {"JOURNAL_STREAM": ours})  # redirected to a file
        assert not is_journal(file, {"JOURNAL_STREAM": identity(file)})
