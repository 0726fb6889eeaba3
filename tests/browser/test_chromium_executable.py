"""The browser that is started, and the errors where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from smartlinkd.browser.chromium import REACH, find_executable
from smartlinkd.browser.errors import LaunchFailed


def program(path: Path, script: str = "") -> Path:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is searched for browsers, and the only one."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def find(folder: Path, setting: Path | None = None) -> Path:
    candidates = (str(folder / "shell"), str(folder / "full"), "chrome")
    wrappers = {str(folder / "wrapper"): str(folder / "behind")}
    return find_executable(setting, candidates=candidates, wrappers=wrappers)


def test_best_installed_candidate_is_taken(installed: Path) -> None:
    for name in ("chrome", "full", "shell"):
        better = program(installed / name)
        assert find(installed) == better
    mine = program(installed / "mine")
    assert find(installed, mine) == mine


def test_debian_wrapper_stands_for_the_program_behind_it(installed: Path) -> None:
    wrapper, behind = program(installed / "wrapper"), program(installed / "behind")
    assert find(installed, wrapper) == behind


def test_no_candidate_raises_what_to_do(installed: Path) -> None:
    with pytest.raises(LaunchFailed, match="apt-get install chromium-headless-shell") as failed:
        find(installed)
    assert "browser.executable" in str(failed.value)


def test_snap_is_passed_over(installed: Path) -> None:
    """Ubuntu's Chromium. It starts from somebody's login alone."""
    (installed / "full").symlink_to(program(installed / "snap"))
    with pytest.raises(LaunchFailed, match=r"^/.*/full is a snap, .*Google Chrome's own package"):
        find(installed)
    with pytest.raises(LaunchFailed, match=r"browser\.executable: .*/full is a snap, which a daem"):
        find(installed, installed / "full")
    chrome = program(installed / "chrome")
    assert find(installed) == chrome


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nothing", "there is no file .*/nothing"),
        ("", "there is no file"),
        ("x" * 300, rf".* cannot be looked at \(File name too long\); {REACH}"),
        ("text", ".*/text is not executable"),
    ],
    ids=["nothing", "a folder", "too long", "no program"],
)
def test_setting_that_is_no_program_is_named(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "text").write_text("x")
    with pytest.raises(LaunchFailed, match=rf"browser\.executable: {said}"):
        find_executable(tmp_path / name)
