"""The mode of a path: a file, nothing, or an error."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from smartlinkd.paths import hidden_above, mode_of


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


def test_a_folder_without_any_mode_hides_all_below_it(tmp_path: Path) -> None:
    above = tmp_path / "above"
    (above / "below").mkdir(parents=True)
    assert hidden_above(above / "below" / "file") is None
    above.chmod(0)
    try:
        assert hidden_above(above / "below" / "file") == above
    finally:
        above.chmod(0o700)


def test_nothing_is_above_what_leads_in_a_circle(tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to("circle")
    assert hidden_above(tmp_path / "circle" / "file") is None
