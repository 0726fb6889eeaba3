"""For anything that starts processes."""

from pathlib import Path

import pytest

from tests.hygiene.at_once import nothing_left, until

__all__ = ["nothing_left", "until"]  # fixtures


@pytest.fixture
def its_folder(open_folder: Path) -> Path:
    """A folder that is removed with its command."""
    folder = open_folder / "its"
    folder.mkdir()
    return folder
