"""A stage with the crews of the matrix, and with parts that can be made to fail."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from smartlinkd.app import tree
from smartlinkd.crews.catalog import catalog
from smartlinkd.crews.worker import WorkerSettings
from tests.every_step.parts import Parts
from tests.faults.stage import JOURNAL, Stage

GRACE = 5.0  # seconds
DEADLINE = 20.0  # seconds
HUMAN_DEADLINE = 30.0  # seconds
READINESS_INTERVAL = 0.5
"""Seconds between two polls of readiness, as some cells last for minutes."""
MAX_MESSAGE_BYTES = 1 << 20
"""Bytes of messages that a worker may send: less than usual, so that a flood is short."""


class CrewStage(Stage):
    """Two crews: `c`, which is struck, and the bystander's, `again`."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self._parts = Parts()
        patch.setattr(tree, "ChildSpec", self._parts.spec)
        patch.setattr(
            catalog, "WorkerSettings", partial(WorkerSettings, max_output=MAX_MESSAGE_BYTES)
        )
        another = folder / "another"
        another.write_text("#!/bin/sh\n")
        another.chmod(0o755)
        super().__init__(folder, patch, crews=_crews(another), poll_interval=READINESS_INTERVAL)
        self._right = self.wall.offset

    @property
    def journal(self) -> Path:
        return self.directory / JOURNAL

    @property
    def elsewhere(self) -> Path:
        """The path to which a fault moves the store's file."""
        return self.directory / "elsewhere"

    def heal(self) -> None:
        """Remove the faults of disk, file and machine; correct a clock that is behind."""
        self.wall.offset = max(self.wall.offset, self._right)
        self.disk.heal()
        self.workers.heal()
        if self.elsewhere.exists():
            self.elsewhere.replace(self.journal)

    def fail(self, part: str) -> None:
        """Make a part fail, as by a bug."""
        self._parts.fail(part)


def _crews(another: Path) -> list[dict[str, Any]]:
    usual = {"max_running": 1, "queue": 3, "grace": GRACE}
    return [
        {
            "name": "c",
            "tools": ["convert_links"],
            "deadline": DEADLINE,
            "human_deadline": HUMAN_DEADLINE,
            **usual,
        },
        {"name": "again", "command": [str(another)], "on_restart": "rerun", **usual},
    ]
