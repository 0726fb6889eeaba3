"""What is at a path: something, nothing, or what cannot be known."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from daemon.paths import mode_of


def test_what_a_path_leads_to_has_a_mode(tmp_path: Path) -> None:
    (tmp_path / "file").touch(0o600)
    (tmp_path / "link").symlink_to("file")
    assert mode_of(tmp_path / "link") == stat.S_IFREG | 0o600
    assert stat.S_ISDIR(mode_of(tmp_path) or 0)


@pytest.mark.parametrize("name", ["nothing", "file/below", "circle", "dangling", "\0", "\ud800"])
def test_what_leads_nowhere_has_none(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "dangling").symlink_to("nothing")
    assert mode_of(tmp_path / name) is None


def test_what_cannot_be_looked_at_is_not_nothing(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="File name too long"):
        mode_of(tmp_path / ("x" * 300))
