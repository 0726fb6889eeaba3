"""What becomes of the commands' output where it goes to a file or a pipe: each is a real process,
since Python writes such output at the end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PASSWORD = b"correct horse"
COMMAND = [sys.executable, "-c", "import sys, daemon.cli; sys.exit(daemon.cli.main())"]
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


def test_what_nobody_wants_to_see_is_no_fault() -> None:
    """`>&-` leaves the command without any standard output."""
    ended = subprocess.run(
        ["/bin/sh", "-c", '"$@" >&-', "sh", *COMMAND, "hash-password"],
        input=PASSWORD,
        capture_output=True,
        env=ENVIRONMENT,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, b"")
