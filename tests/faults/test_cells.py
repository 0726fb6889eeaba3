"""Test every possible cell of the fault matrix."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from tests.faults.matrix import ALL, MATRIX
from tests.faults.play import CellRun
from tests.faults.stage import Stage
from tests.faults.strikes import ARMED, STRIKES

LONGEST = 400.0
"""Seconds on the mock clock: more than any cell takes."""


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
