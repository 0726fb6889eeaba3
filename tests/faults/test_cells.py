"""Every cell of the fault matrix that there is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from tests.faults.matrix import CELLS, IMPOSSIBLE, MATRIX, Due, Impossible
from tests.faults.play import Play
from tests.faults.stage import Stage

LONGEST = 400.0
"""Seconds on the stage's clock: no cell waits for as long."""

Record = Callable[[str, object], None]


def test_the_matrix_has_no_hole(record_property: Record) -> None:
    """Each fault in each phase is decided, and what is impossible says why."""
    possible = [cell for cell, what in MATRIX.items() if not isinstance(what, Impossible)]
    record_property("fault cells", len(possible))
    assert possible == CELLS
    assert all(len(why.split()) > 4 for why in IMPOSSIBLE.values())


@pytest.mark.parametrize("cell", CELLS, ids="-".join)
async def test_cell(  # noqa: PLR0917 - fixtures
    cell: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mock_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
    at_rest: Counter[str],
    record_property: Record,
) -> None:
    record_property("fault cell", "-".join(cell))
    due = MATRIX[cell]
    assert isinstance(due, Due)
    caplog.clear()
    stage = Stage(tmp_path, monkeypatch, mock_clock)
    descriptors = stage.descriptors()
    with trio.fail_after(LONGEST):
        async with trio.open_nursery() as nursery:
            await Play(cell, due, stage, caplog.records).run(nursery, at_rest)
            stage.stop()
            await stage.ended.wait()
    assert (stage.processes(), stage.folders()) == (0, 0)
    assert stage.descriptors() == descriptors
