"""Runs of the adapter without CrewAI."""

from __future__ import annotations

import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from smartlinkd.crews.catalog.catalog import ADAPTER
from smartlinkd.crews.protocol import Inputs
from smartlinkd.crews.worker import Worker
from tests.crews.crewai_adapter.stand_in import STAND_IN, write
from tests.crews.scripts import Begin


@pytest.fixture
def crew(begin: Begin, tmp_path: Path) -> Begin:
    """`async with crew(code, inputs={…}, tools=(…)) as worker`: `code` is the project's crew.py."""
    stand_in = write(tmp_path / "stand-in", STAND_IN)

    def start(
        code: str, inputs: Any = None, tools: tuple[str, ...] = (), **environment: str
    ) -> AbstractAsyncContextManager[Worker]:
        project = write(tmp_path / "project", {"src/press/crew.py": code})
        return begin(
            sys.executable,
            str(ADAPTER),
            str(project),
            inputs=Inputs(inputs=inputs or {}, tools=tools),
            environment={"PYTHONPATH": str(stand_in), **environment},
        )

    return start
