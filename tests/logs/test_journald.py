"""The journal's own protocol: what a record is there, and what happens when it is not taken."""

from __future__ import annotations

import io
import json
import logging
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import pytest

from smartlinkd import logs
from smartlinkd.logs import LogContext, LogEvent, bind_log_actor, bind_log_contexts, journald

if TYPE_CHECKING:
    from tests.logs.conftest import Entry, Journal

logger = logging.getLogger("smartlinkd.test")

FORGED = "x\nPRIORITY=0\nMESSAGE=forged\n\n\x00\x1b[2J\r\udcff"


@dataclass
class Stderr:
    """Standard error of a service: a stream socket, at whose other end the journal reads lines."""

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

    def fill(self) -> int:
        """Until it takes no more."""
        written = 0
        with suppress(BlockingIOError), socket.socket(fileno=os.dup(self.stream.fileno())) as one:
            while True:
                written += one.send(b"-" * 4096, socket.MSG_DONTWAIT)
        return written


@pytest.fixture
def stderr() -> Iterator[Stderr]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with ours, theirs, os.fdopen(os.dup(ours.fileno()), "w") as stream:
        yield Stderr(stream, theirs)


@pytest.fixture
def logging_to(stderr: Stderr, journal: Journal, monkeypatch: pytest.MonkeyPatch) -> Journal:
    monkeypatch.setattr(journald.Journal.__init__, "__defaults__", (str(journal.path),))
    logs.set_up("debug", stderr.stream, {"JOURNAL_STREAM": stderr.variable})
    return journal


@contextmanager
def in_time(seconds: float = 10.0) -> Iterator[None]:
    """Nothing in the body waits for anybody; what it does takes milliseconds."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < seconds


def descriptors() -> list[str]:
    return sorted(entry.name for entry in Path("/proc/self/fd").iterdir())


def one(journal: Journal) -> Entry:
    (entry,) = journal.read()
    return entry


def test_a_record_is_an_entry_of_fields(logging_to: Journal, stderr: Stderr) -> None:
    with (
        bind_log_actor("conversion"),
        bind_log_contexts((LogContext("r1", "post", "k1"), LogContext("r2"))),
    ):
        logger.warning("account %s, giá", "7", extra=LogEvent.ACCOUNT_PAUSED(account="7"))
    entry = one(logging_to)
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
        "CODE_FUNC": [b"test_a_record_is_an_entry_of_fields"],
    }
    assert stderr.read() == b""


@pytest.mark.parametrize(
    ("level", "priority"),
    [("debug", b"7"), ("info", b"6"), ("warning", b"4"), ("error", b"3"), ("critical", b"2")],
)
def test_levels_are_syslogs(logging_to: Journal, level: str, priority: bytes) -> None:
    getattr(logger, level)("x")
    assert one(logging_to)["PRIORITY"] == [priority]


def test_no_value_forges_a_field_or_an_entry(logging_to: Journal) -> None:
    with bind_log_contexts((LogContext(request_id=FORGED, crew=FORGED),)):
        logger.info("%s", FORGED, extra=LogEvent.STARTED(account=FORGED))
    entry = one(logging_to)
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
def test_a_message_moves_no_cursor_and_is_no_blob(
    logging_to: Journal, text: str, shown: str
) -> None:
    """`journalctl` hides a text with a control character that is no line end and no tab."""
    logger.info("%s", text)
    assert one(logging_to)["MESSAGE"] == [shown.encode()]
    logger.error("failed", exc_info=ValueError(text))
    failed = one(logging_to)["MESSAGE"][0].decode()
    assert all(each.isprintable() or each in "\n\t\u00a0" for each in failed)


def test_an_exception_is_a_field_of_its_own(logging_to: Journal) -> None:
    both = ExceptionGroup("both", [ValueError("first\nline"), KeyError("second")])
    logger.error("http failed", exc_info=both)
    entry = one(logging_to)
    assert entry["MESSAGE"] == [b"http failed: ValueError: first line"]
    trace = entry["EXCEPTION"][0].decode()
    assert trace.startswith("  | ExceptionGroup: both")
    assert "KeyError: 'second'" in trace
    assert entry["PRIORITY"] == [b"3"]


def test_what_is_too_large_for_a_datagram_goes_as_a_sealed_file(
    logging_to: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("smartlinkd.logs.formats.MAX_MESSAGE_CHARS", 1 << 20)
    logger.info("<" + 600_000 * "y" + "\n>")
    logger.info("small")
    large, small = logging_to.read()
    assert logging_to.files == 1
    assert large["MESSAGE"] == [b"<" + 600_000 * b"y" + b"\n>"]
    assert small["MESSAGE"] == [b"small"]


def test_nothing_is_left_open(logging_to: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smartlinkd.logs.formats.MAX_MESSAGE_CHARS", 1 << 20)
    before = descriptors()
    for _ in range(5):
        logger.info("x" * 600_000)
    logging_to.read()
    assert descriptors() == before


def test_without_the_journals_socket_lines_go_to_standard_error(
    logging_to: Journal, stderr: Stderr
) -> None:
    logging_to.path.unlink()
    with in_time(), bind_log_contexts((LogContext(request_id="r1"),)):
        logger.error("one\ntwo")
    line, end, rest = stderr.read().partition(b"\n")
    assert (end, rest) == (b"\n", b"")
    assert line.startswith(b'<3>{"time": ')  # the journal reads the priority
    assert b'"message": "one\\ntwo"' in line
    assert b'"request_id": "r1"' in line


def test_a_journal_that_was_started_again_is_found_again(
    logging_to: Journal, stderr: Stderr
) -> None:
    logging_to.path.unlink()
    logger.info("between")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as again:
        again.bind(str(logging_to.path))
        logger.info("after")
        assert b"MESSAGE=after\n" in again.recv(4096, socket.MSG_DONTWAIT)
    assert b"between" in stderr.read()


def test_a_journal_that_is_full_holds_up_nobody(logging_to: Journal, stderr: Stderr) -> None:
    with in_time():
        for number in range(2000):
            logger.info("record %d", number)
    entries = logging_to.read()
    lines = stderr.read().splitlines()
    assert 0 < len(entries) < 2000
    by_entry = [entry["MESSAGE"][0].decode() for entry in entries]
    assert by_entry == [f"record {number}" for number in range(len(entries))]
    assert f"record {len(entries)}".encode() in lines[0]


def test_what_nobody_takes_is_counted_and_the_count_is_told(
    logging_to: Journal, stderr: Stderr
) -> None:
    stderr.fill()
    with in_time():
        for number in range(600):
            logger.info("record %d", number)
    taken = len(logging_to.read())
    with in_time():
        logger.info("after")
    after, lost = logging_to.read()
    assert after["MESSAGE"] == [b"after"]
    assert lost["MESSAGE"] == [
        b"%d log records are lost: the journal did not take them" % (600 - taken)
    ]
    assert lost["MESSAGE_ID"] == [LogEvent.RECORDS_LOST.message_id.encode()]
    logger.info("later")
    assert one(logging_to)["MESSAGE"] == [b"later"]  # it is told once


def test_a_line_that_was_taken_in_part_is_ended_before_the_next(
    logging_to: Journal, stderr: Stderr
) -> None:
    logging_to.path.unlink()
    with socket.socket(fileno=os.dup(stderr.stream.fileno())) as ours:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    read = b""
    with in_time():
        for number in range(100):
            logger.error("%d %s", number, "x" * 7000)
            read += stderr.other_end.recv(1500, socket.MSG_DONTWAIT)
        read += stderr.read()
        for number in range(20):  # the end of a torn line, and the count of the lost
            logger.error("%d, nearly the last", number)
            read += stderr.read()
    lines = read.splitlines()
    assert 10 < len(lines) < 120
    for line in lines:
        assert line[:3] in (b"<3>", b"<4>")
        assert "message" in json.loads(line[3:])
    assert b'"message": "19, nearly the last"' in lines[-1]
    assert any(b"records are lost" in line for line in lines)


def test_who_has_gone_from_the_other_end_ends_nothing(logging_to: Journal, stderr: Stderr) -> None:
    logging_to.path.unlink()
    stderr.other_end.close()
    with in_time():
        logger.error("to nobody")


def test_a_fault_of_a_record_is_its_own(logging_to: Journal) -> None:
    before, logging.raiseExceptions = logging.raiseExceptions, False
    try:
        logger.info("%d", "no number")
    finally:
        logging.raiseExceptions = before
    logger.info("after")
    assert one(logging_to)["MESSAGE"] == [b"after"]


# Whether the journal is there


def kinds(stream: TextIO, environ: dict[str, str]) -> str:
    logs.set_up("info", stream, environ)
    (handler,) = [each for each in logging.getLogger().handlers if hasattr(each, "formatter")][-1:]
    return type(handler).__name__ + "/" + type(handler.formatter).__name__


def test_only_the_journals_own_stream_is_the_journals(stderr: Stderr) -> None:
    device, inode = stderr.variable.split(":")
    assert kinds(stderr.stream, {"JOURNAL_STREAM": stderr.variable}).startswith("JournalHandler")
    for other in ({}, {"JOURNAL_STREAM": ""}, {"JOURNAL_STREAM": f"{device}:{int(inode) + 1}"}):
        assert kinds(stderr.stream, other) == "StreamHandler/JsonFormatter"


def test_standard_error_that_was_redirected_is_not(stderr: Stderr, tmp_path: str) -> None:
    environ = {"JOURNAL_STREAM": stderr.variable}
    with open(f"{tmp_path}/log", "w") as file:  # noqa: PTH123
        assert kinds(file, environ) == "StreamHandler/JsonFormatter"
    assert kinds(io.StringIO(), environ) == "StreamHandler/JsonFormatter"
    screen, ours = os.openpty()
    with os.fdopen(screen, "w"), os.fdopen(ours, "w") as terminal:
        assert kinds(terminal, environ) == "LineHandler/TerminalFormatter"


def test_a_file_that_the_variable_names_is_no_stream_of_the_journals(tmp_path: str) -> None:
    with open(f"{tmp_path}/log", "w") as file:  # noqa: PTH123
        status = os.fstat(file.fileno())
        environ = {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"}
        assert kinds(file, environ) == "StreamHandler/JsonFormatter"


def test_setting_up_again_replaces_the_journals_handler(
    logging_to: Journal, stderr: Stderr
) -> None:
    other = io.StringIO()
    logs.set_up("info", other, {})
    logger.info("once")
    assert logging_to.read() == []
    assert other.getvalue().count("once") == 1
