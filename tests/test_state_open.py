"""A state directory in which others could put something, or that is none, is not used."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from daemon.state import StateUnusable, claim


@pytest.mark.parametrize("mode", [0o777, 0o702, 0o1777])
def test_one_that_every_user_can_write_to_is_refused_untouched(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    text = f"every user can write to {tmp_path}; run `chmod 700 {tmp_path}`"
    with pytest.raises(StateUnusable, match=text), claim(tmp_path):
        pytest.fail("it was given out")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("below", ["", "not/there/yet"])
def test_one_that_nobody_can_write_to_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, below: str
) -> None:
    seen: list[Path] = []

    def read_only(path: Path) -> SimpleNamespace:
        if not path.exists():
            raise FileNotFoundError(path)
        seen.append(path)
        return SimpleNamespace(f_flag=os.ST_RDONLY | os.ST_NOSUID)

    monkeypatch.setattr(os, "statvfs", read_only)
    text = f"{tmp_path / below} is on a file system that is read-only here; name another one"
    with pytest.raises(StateUnusable, match=text), claim(tmp_path / below):
        pytest.fail("it was given out")
    assert seen == [tmp_path]


def test_one_that_others_can_only_look_into_is_used(tmp_path: Path) -> None:
    tmp_path.chmod(0o775)
    with claim(tmp_path):
        assert any(tmp_path.iterdir())


def test_a_file_in_its_place_is_refused_and_kept(tmp_path: Path) -> None:
    place = tmp_path / "state"
    place.write_text("notes of the owner's")
    text = f"state.directory: {place} is no directory; name another one"
    with pytest.raises(StateUnusable, match=text), claim(place):
        pytest.fail("it was given out")
    assert place.read_text() == "notes of the owner's"
