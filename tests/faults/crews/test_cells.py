"""Test every possible cell of the crews' fault matrix."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from smartlinkd.sandbox.session import cookie_header
from tests.faults.crews.client import Client
from tests.faults.crews.matrix import ALL, MATRIX
from tests.faults.crews.phases import idle
from tests.faults.crews.play import CellRun, Resources
from tests.faults.crews.stage import CrewStage
from tests.faults.crews.strikes import STRIKES

LONGEST = 10_000.0
"""Seconds on the mock clock: more than any cell takes."""
SOON = 60.0  # seconds
_AT_REST: dict[str, Resources] = {}
"""Measured once a process, as it is the same for all tests."""


@pytest.fixture
async def at_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> Resources:
    """The resources of a healthy daemon that has run executions."""
    if not _AT_REST:
        (tmp_path / "healthy").mkdir()
        with monkeypatch.context() as patch, trio.fail_after(SOON):
            _AT_REST["it"] = await _look(CrewStage(tmp_path / "healthy", patch))
    return _AT_REST["it"]


async def _look(stage: CrewStage) -> Resources:
    before = stage.descriptors()
    async with trio.open_nursery() as nursery:
        scene = await idle(stage, nursery)
        stage.workers.worker_of(scene.bystander).run_instead("done b", "result fine")
        await Client(stage, "again").wait_ended(scene.bystander, SOON)
        kickoff = await scene.kick_off().expect_ok()
        await scene.client.wait_ended(kickoff["kickoff_id"], SOON)
        await stage.request(
            "POST", "/api/sync-cookie", {"cookie": cookie_header(stage.account())}
        ).wait()
        await trio.sleep(10.0)
        found = Resources(stage.tasks(), stage.descriptors() - before)
        stage.stop()
        await stage.ended.wait()
    return found


def test_matrix_is_complete() -> None:
    MATRIX.check(STRIKES, ALL)


@pytest.mark.parametrize("cell", MATRIX.cells, ids="-".join)
async def test_cell(  # noqa: PLR0917 - fixtures
    cell: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
    at_rest: Resources,
) -> None:
    caplog.set_level(logging.INFO, logger="smartlinkd")
    stage = CrewStage(tmp_path, monkeypatch)
    descriptors = stage.descriptors()
    with trio.fail_after(LONGEST):
        async with trio.open_nursery() as nursery:
            await CellRun(cell, MATRIX.due(cell), stage, caplog.records).run(nursery, at_rest)
            stage.stop()
            await stage.wait_gone(LONGEST)
    assert stage.descriptors() == descriptors
