"""The tasks of a healthy daemon, for comparison after a fault."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from tests.faults.phases import SOON, start_with_page
from tests.faults.stage import Stage

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
