"""Full pipes and halted terminals do not block the daemon, and lines stay whole."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import pty
import termios
import tty
from collections.abc import Iterator
from typing import TextIO

import pytest

from smartlinkd import logs
from smartlinkd.logs import LogEvent

logger = logging.getLogger("smartlinkd.test")

MORE_THAN_IT_HOLDS = 2000
PAGE = 4096


@pytest.fixture
def pipe() -> Iterator[tuple[int, TextIO]]:
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PAGE)
    os.set_blocking(reading, False)
    with os.fdopen(writing, "w") as stream:
        yield reading, stream
    os.close(reading)


def read_all(reading: int) -> bytes:
    found = b""
    try:
        while data := os.read(reading, 1 << 16):
            found += data
    except BlockingIOError:
        pass
    return found


def test_full_pipe_is_not_waited_for_and_lost_records_are_counted(pipe: tuple[int, TextIO]) -> None:
    reading, stream = pipe
    logs.set_up("info", stream, {})
    for number in range(MORE_THAN_IT_HOLDS):
        logger.info("record %d", number)
    read = read_all(reading)
    logger.info("the last one")
    read += read_all(reading)
    told = [json.loads(line) for line in read.splitlines()]
    *taken, last, lost = told
    assert [each["message"] for each in taken] == [f"record {n}" for n in range(len(taken))]
    assert last["message"] == "the last one"
    count = MORE_THAN_IT_HOLDS - len(taken)
    assert lost["message"] == f"{count} log records are lost: standard error did not take them"
    assert (lost["event"], lost["message_id"]) == ("records_lost", LogEvent.RECORDS_LOST.message_id)
    assert os.get_blocking(stream.fileno())  # the shell shares it


def test_broken_pipe_is_ignored(capfd: pytest.CaptureFixture[str]) -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream:
        logs.set_up("info", stream, {})
        os.close(reading)
        logger.info("to nobody")
    assert capfd.readouterr().err == ""  # and no error is shown elsewhere


def test_halted_terminal_is_not_waited_for_and_a_lone_surrogate_loses_no_line() -> None:
    screen, ours = pty.openpty()
    tty.setraw(ours)
    os.set_blocking(screen, False)
    with os.fdopen(ours, "w") as stream:
        logs.set_up("info", stream, {})
        termios.tcflow(ours, termios.TCOOFF)  # like Ctrl-S
        for number in range(MORE_THAN_IT_HOLDS):
            logger.info("record %d", number)
        termios.tcflow(ours, termios.TCOON)
        logger.info("the last one: \ud83d")
        assert rb" INFO    test: the last one: \ud83d" in read_all(screen)
    os.close(screen)


def test_torn_line_is_completed_before_the_next_one(pipe: tuple[int, TextIO]) -> None:
    reading, stream = pipe
    logs.set_up("info", stream, {})
    long = "x" * 2 * PAGE
    logger.info(long)
    logger.info("lost")
    read = read_all(reading)
    logger.info("still lost")  # it does not fit behind the rest
    read += read_all(reading)
    logger.info("after")
    read += read_all(reading)
    first, after, lost = (json.loads(line)["message"] for line in read.splitlines())
    assert (first, after) == (long, "after")
    assert lost.startswith("2 log records are lost")
