"""Test every possible cell of the crews' fault matrix."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from tests.faults.crews.matrix import ALL, MATRIX
from tests.faults.crews.play import CellRun, Resources
from tests.faults.crews.stage import CrewStage
from tests.faults.crews.strikes import STRIKES

LONGEST = 10_000.0
"""Seconds on the mock clock: more than any cell takes."""


def test_matrix_is_complete() -> None:
    MATRIX.check(STRIKES, ALL)


@pytest.mark.parametrize("cell", MATRIX.cells, ids="-".join)
async def test_cell(  # noqa: PLR0917 - fixtures
    cell: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
    crews_at_rest: Resources,
) -> None:
    caplog.set_level(logging.INFO, logger="smartlinkd")
    stage = CrewStage(tmp_path, monkeypatch)
    descriptors = stage.descriptors()
    with trio.fail_after(LONGEST):
        async with trio.open_nursery() as nursery:
            await CellRun(cell, MATRIX.due(cell), stage, caplog.records).run(nursery, crews_at_rest)
            stage.stop()
            await stage.wait_gone(LONGEST)
    assert stage.descriptors() == descriptors
