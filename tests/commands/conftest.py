"""Fixtures for commands that become the daemon's user."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.config_file import HASH


@pytest.fixture
def tmp_path(open_folder: Path) -> Path:
    """A folder that the daemon's user can reach."""
    return open_folder


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that writes a valid configuration plus some text; `{tmp}` becomes its
    folder."""

    def write_config(crews: str) -> Path:
        path = tmp_path / "config.toml"
        path.write_text(
            f'[auth]\npassword_hash = "{HASH}"\n[state]\ndirectory = "{tmp_path}/state"\n'
            + crews.replace("{tmp}", str(tmp_path))
        )
        path.chmod(0o600)
        return path

    (tmp_path / "state").mkdir()
    return write_config
