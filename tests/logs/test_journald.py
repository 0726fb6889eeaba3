"""The journal's native protocol, and standard error as its replacement."""

from __future__ import annotations

import io
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
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


@dataclass
class Stderr:
    """A service's standard error: a stream socket whose lines the journal reads."""

    stream: TextIO
    other_end: socket.socket

    @property
    def variable(self) -> str:
        status = os.fstat(self.stream.fileno())
        return f"{status.st_dev}:{status.st_ino}"

    def read(self) -> bytes:
        found = b""
        with suppress(BlockingIOError):
            while data := self.other_end.recv(1 << 16, socket.MSG_DONTWAIT):
                found += data
        return found

    def fill(self) -> None:
        """Write until the socket accepts no more."""
        with suppress(BlockingIOError), socket.socket(fileno=os.dup(self.stream.fileno())) as one:
            while True:
                one.send(b"-" * 4096, socket.MSG_DONTWAIT)


@pytest.fixture
def stderr() -> Iterator[Stderr]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with ours, theirs, os.fdopen(os.dup(ours.fileno()), "w") as stream:
        yield Stderr(stream, theirs)


@pytest.fixture
def logging_to(stderr: Stderr, journal: Journal) -> Journal:
    environ = {"JOURNAL_STREAM": stderr.variable}
    logs.set_up("debug", stderr.stream, environ, journal_socket=str(journal.path))
    return journal


def only_entry(journal: Journal) -> Entry:
    (entry,) = journal.read()
    return entry


def test_record_is_an_entry_of_fields(logging_to: Journal, stderr: Stderr) -> None:
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
    assert stderr.read() == b""


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


def test_lines_go_to_standard_error_without_the_journals_socket(
    logging_to: Journal, stderr: Stderr
) -> None:
    logging_to.path.unlink()
    with bind_log_contexts((LogContext(request_id="r1"),)):
        logger.error("one\ntwo")
    line, end, rest = stderr.read().partition(b"\n")
    assert (end, rest) == (b"\n", b"")
    assert line.startswith(b'<3>{"time": ')  # the journal reads the priority
    assert b'"message": "one\\ntwo"' in line
    assert b'"request_id": "r1"' in line


def test_restarted_journal_is_found_again(logging_to: Journal, stderr: Stderr) -> None:
    logging_to.path.unlink()
    logger.info("between")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as again:
        again.bind(str(logging_to.path))
        logger.info("after")
        assert b"MESSAGE=after\n" in again.recv(4096, socket.MSG_DONTWAIT)
    assert b"between" in stderr.read()


def test_full_journal_is_not_waited_for(logging_to: Journal, stderr: Stderr) -> None:
    for number in range(2000):
        logger.info("record %d", number)
    entries = logging_to.read()
    lines = stderr.read().splitlines()
    assert 0 < len(entries) < 2000
    by_entry = [entry["MESSAGE"][0].decode() for entry in entries]
    assert by_entry == [f"record {number}" for number in range(len(entries))]
    assert f"record {len(entries)}".encode() in lines[0]


def test_lost_records_are_counted_and_logged_once(logging_to: Journal, stderr: Stderr) -> None:
    stderr.fill()
    for number in range(600):
        logger.info("record %d", number)
    taken = len(logging_to.read())
    logger.info("after")
    after, lost = logging_to.read()
    assert after["MESSAGE"] == [b"after"]
    assert lost["MESSAGE"] == [
        b"%d log records are lost: the journal did not take them" % (600 - taken)
    ]
    assert lost["MESSAGE_ID"] == [LogEvent.RECORDS_LOST.message_id.encode()]
    logger.info("later")
    assert only_entry(logging_to)["MESSAGE"] == [b"later"]  # the loss is logged once


def test_closed_standard_error_is_ignored(logging_to: Journal, stderr: Stderr) -> None:
    logging_to.path.unlink()
    stderr.other_end.close()
    logger.error("to nobody")


def test_faulty_record_does_not_stop_the_next(logging_to: Journal) -> None:
    before, logging.raiseExceptions = logging.raiseExceptions, False
    try:
        logger.info("%d", "no number")
    finally:
        logging.raiseExceptions = before
    logger.info("after")
    assert only_entry(logging_to)["MESSAGE"] == [b"after"]


def test_longest_record_fits_into_a_datagram(logging_to: Journal, stderr: Stderr) -> None:
    logger.error("%s", "😀" * 100_000, exc_info=ValueError("😀" * 100_000))
    assert len(only_entry(logging_to)["EXCEPTION"][0]) > 4 * 32_000
    assert stderr.read() == b""


def test_journal_is_recognized_by_its_own_stream_alone(stderr: Stderr, tmp_path: Path) -> None:
    device, inode = stderr.variable.split(":")
    assert is_journal(stderr.stream, {"JOURNAL_STREAM": stderr.variable})
    for other in ({}, {"JOURNAL_STREAM": ""}, {"JOURNAL_STREAM": f"{device}:{int(inode) + 1}"}):
        assert not is_journal(stderr.stream, other)
    assert not is_journal(io.StringIO(), {"JOURNAL_STREAM": stderr.variable})
    with (tmp_path / "log").open("w") as file:
        assert not is_journal(file, {"JOURNAL_STREAM": stderr.variable})  # redirected to a file
        status = os.fstat(file.fileno())
        assert not is_journal(file, {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"})
