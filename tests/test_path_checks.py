"""The mode of a path: a file, nothing, or an error."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from smartlinkd.path_checks import hidden_above, mode_of


def test_mode_of_a_link_is_that_of_its_target(tmp_path: Path) -> None:
    (tmp_path / "file").touch(0o600)
    (tmp_path / "link").symlink_to("file")
    assert mode_of(tmp_path / "link") == stat.S_IFREG | 0o600
    assert stat.S_ISDIR(mode_of(tmp_path) or 0)


@pytest.mark.parametrize("name", ["nothing", "file/below", "circle", "dangling", "\0", "\ud800"])
def test_path_without_a_file_has_no_mode(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "dangling").symlink_to("nothing")
    assert mode_of(tmp_path / name) is None


def test_path_that_cannot_be_looked_up_raises(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="File name too long"):
        mode_of(tmp_path / ("x" * 300))


def test_closed_folder_hides_all_below_it(tmp_path: Path) -> None:
    above = tmp_path / "above"
    (above / "below").mkdir(parents=True)
    assert hidden_above(above / "below" / "file") is None
    above.chmod(0)
    try:
        assert hidden_above(above / "below" / "file") == above
    finally:
        above.chmod(0o700)


def test_circular_link_has_no_hidden_folder_above(tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to("circle")
    assert hidden_above(tmp_path / "circle" / "file") is None
