"""Row 7 measures both sides by the same, and by one that the kernel shows of all programs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from bench import memory
from bench.memory import ANONYMOUS, PSS, measure_of, size
from tests.soak.memory import fields


@pytest.fixture
def program() -> Iterator[int]:
    """One with another one below it, and as large as a Python is."""
    inner = [sys.executable, "-c", "print('up', flush=True); input()"]
    outer = f"import subprocess; subprocess.run({inner!r})"
    with subprocess.Popen(
        [sys.executable, "-c", outer], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid


@pytest.fixture
def hidden(program: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """The one below: to another user than root the kernel shows little of it."""
    _, below = memory._tree(program)

    def refused(path: str) -> dict[str, int]:
        if path == f"/proc/{below}/smaps_rollup":
            raise PermissionError(path)
        return fields(path)

    monkeypatch.setattr(memory, "fields", refused)
    return below


def test_what_is_shared_is_divided(program: int) -> None:
    assert measure_of([os.getpid(), program]) is PSS
    assert size(PSS, program, browser=False) > 1
    assert size(PSS, program, browser=True) == 0


@pytest.mark.usefixtures("hidden")
def test_where_that_is_not_shown_of_one_it_counts_of_none(program: int) -> None:
    assert measure_of([os.getpid(), program]) is ANONYMOUS
    assert size(ANONYMOUS, program, browser=False) > 1


@pytest.mark.usefixtures("hidden")
def test_one_that_is_not_shown_is_not_left_out(program: int) -> None:
    with pytest.raises(PermissionError):
        size(PSS, program, browser=False)
