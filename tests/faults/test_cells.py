"""Test every possible cell of the fault matrix."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from tests.faults.matrix import ALL, MATRIX
from tests.faults.phases import SOON, start_with_page
from tests.faults.play import CellRun
from tests.faults.stage import Stage
from tests.faults.strikes import ARMED, STRIKES

LONGEST = 400.0
"""Seconds on the mock clock: more than any cell takes."""
_AT_REST: dict[str, Counter[str]] = {}
"""Measured once a process, as it is the same for all tests."""


@pytest.fixture
async def at_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> Counter[str]:
    """The tasks of a daemon that has answered one request and waits for the next, by name."""
    if not _AT_REST:
        with monkeypatch.context() as patch:
            (tmp_path / "healthy").mkdir()
            stage = Stage(tmp_path / "healthy", patch)
            with trio.fail_after(SOON):
                async with trio.open_nursery() as nursery:
                    await start_with_page(stage, nursery)
                    await trio.sleep(1.0)
                    _AT_REST["tasks"] = stage.tasks()
                    stage.stop()
    return _AT_REST["tasks"]


def test_matrix_is_complete() -> None:
    MATRIX.check((*STRIKES, *ARMED), ALL)


@pytest.mark.parametrize("cell", MATRIX.cells, ids="-".join)
async def test_cell(  # noqa: PLR0917 - fixtures
    cell: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
    at_rest: Counter[str],
) -> None:
    caplog.clear()
    stage = Stage(tmp_path, monkeypatch)
    descriptors = stage.descriptors()
    with trio.fail_after(LONGEST):
        async with trio.open_nursery() as nursery:
            await CellRun(cell, MATRIX.due(cell), stage, caplog.records).run(nursery, at_rest)
            stage.stop()
            await stage.wait_gone(LONGEST)
    assert stage.descriptors() == descriptors
