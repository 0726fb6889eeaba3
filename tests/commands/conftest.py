"""Commands that become the user whom the daemon runs as."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from smartlinkd.auth.passwords import hash_password

HASH = hash_password("correct horse")


@pytest.fixture
def tmp_path(open_folder: Path) -> Path:
    """That user has to get there."""
    return open_folder


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    """Make a good configuration, but for what is added to it; in the text {tmp} is its folder."""

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
