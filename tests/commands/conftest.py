"""Commands that become the user whom the daemon runs as."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def tmp_path(open_folder: Path) -> Path:
    """That user has to get there."""
    return open_folder
