"""A run that is ended ends what it has started, and what it has measured is not lost."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.bench.waiting import ENDED, UP
from tests.programs import ROOT

PATIENCE = 60.0  # seconds
# Rows of the test's own, and nothing about the machine, which would take a Chromium.
RUN = """
import sys
from bench import __main__ as bench
from tests.bench.waiting import ROWS
bench.ROWS, bench.versions.found = ROWS, dict
sys.exit(bench.main())
"""


@contextmanager
def run(folder: Path, *before: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A run, in the middle of its second row, and its program's process."""
    # Whoever runs the tests may ignore them, and a program begins with what is ignored.
    heard = ("env", "--default-signal=INT,HUP")
    words = [*heard, *before, sys.executable, "-c", RUN, "--quick", "--out", str(folder)]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = (re.search(r"pid (\d+)", line) for line in process.stdout)
        try:
            yield process, next(int(found[1]) for found in told if found)
            process.wait(PATIENCE)
        finally:
            process.terminate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_what_was_started_is_ended_by_the_run_alone(tmp_path: Path, number: signal.Signals) -> None:
    with run(tmp_path) as (process, pid):
        assert os.getpgid(pid) == pid
        process.send_signal(number)
    assert process.returncode == 128 + number
    assert (tmp_path / "log").read_text(encoding="utf-8") == UP + ENDED


def test_what_was_measured_before_is_kept(tmp_path: Path) -> None:
    with run(tmp_path) as (process, _):
        process.terminate()
    kept = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert [row["number"] for row in kept["rows"]] == [1]
    assert not kept["complete"]


def test_a_closed_terminal_does_not_end_one_that_is_to_go_on_without(tmp_path: Path) -> None:
    with run(tmp_path, "nohup") as (process, _):
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
    assert process.returncode == 128 + signal.SIGTERM
