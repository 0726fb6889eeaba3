"""The commands' output to a file or a pipe. Each command is a real process, because Python writes
such output at its end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PASSWORD = b"correct horse"
COMMAND = [sys.executable, "-c", "import sys, smartlinkd.cli; sys.exit(smartlinkd.cli.main())"]
# Output is buffered, as by default.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


def run_hash_password(stdout: int) -> tuple[int, str]:
    """Return the exit code and standard error of `hash-password` with this standard output."""
    ended = subprocess.run(
        [*COMMAND, "hash-password"],
        input=PASSWORD,
        stdout=stdout,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
        check=False,
    )
    return ended.returncode, ended.stderr.decode()


def test_full_disk_is_an_error_of_one_line() -> None:
    with Path("/dev/full").open("wb") as full:
        told = run_hash_password(full.fileno())
    assert told == (1, "smartlinkd: the output cannot be written: No space left on device\n")


def test_broken_pipe_exits_with_141() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        told = run_hash_password(writing)
    finally:
        os.close(writing)
    assert told == (141, "")


def run_with_closed_streams(streams: str, *arguments: str) -> tuple[int, bytes]:
    """Return the exit code and all output of a command that a shell starts with closed streams."""
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
def test_closed_standard_error_is_no_error(streams: str, tmp_path: Path) -> None:
    assert run_with_closed_streams(streams, "serve", "--config", str(tmp_path / "none")) == (2, b"")


def test_closed_standard_input_is_empty() -> None:
    assert run_with_closed_streams("<&-", "hash-password") == (
        1,
        b"smartlinkd: the password is empty\n",
    )
