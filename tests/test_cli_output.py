"""What becomes of the commands' output where it goes to a file or a pipe: each is a real process,
since Python writes such output at the end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PASSWORD = b"correct horse"
COMMAND = [sys.executable, "-c", "import sys, smartlinkd.cli; sys.exit(smartlinkd.cli.main())"]
# Buffered, as for everybody who has not asked for anything else.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


def hashing(stdout: int) -> tuple[int, str]:
    """The exit code and what is told of `hash-password`, whose output goes there."""
    ended = subprocess.run(
        [*COMMAND, "hash-password"],
        input=PASSWORD,
        stdout=stdout,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
        check=False,
    )
    return ended.returncode, ended.stderr.decode()


def test_a_full_disk_is_told_in_a_line() -> None:
    with Path("/dev/full").open("wb") as full:
        told = hashing(full.fileno())
    assert told == (1, "smartlinkd: the output cannot be written: No space left on device\n")


def test_a_reader_that_has_gone_is_no_fault() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        told = hashing(writing)
    finally:
        os.close(writing)
    assert told == (141, "")


def closed(streams: str, *arguments: str) -> tuple[int, bytes]:
    """The exit code and all output of a command that a shell has started without these."""
    ended = subprocess.run(
        ["/bin/sh", "-c", f'"$@" {streams}', "sh", *COMMAND, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=ENVIRONMENT,
        check=False,
    )
    return ended.returncode, ended.stdout


@pytest.mark.parametrize("streams", ["2>&-", "<&- >&- 2>&-"])
def test_a_log_that_nobody_wants_is_no_fault(streams: str, tmp_path: Path) -> None:
    assert closed(streams, "serve", "--config", str(tmp_path / "none")) == (2, b"")


def test_an_input_that_is_not_there_is_an_empty_one() -> None:
    assert closed("<&-", "hash-password") == (1, b"smartlinkd: the password is empty\n")
