"""Which browser is started, and what is said when there is none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from smartlinkd.browser import chromium
from smartlinkd.browser.chromium import find_executable
from smartlinkd.browser.errors import LaunchFailed

LOOK = """
import os, sys
from pathlib import Path
from smartlinkd.browser.errors import LaunchFailed
from smartlinkd.browser.chromium import find_executable

os.setuid(65534)
try:
    find_executable(Path(sys.argv[1]))
except LaunchFailed as failed:
    print(failed)
"""


def program(path: Path, script: str = "") -> Path:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A system with no browser but those that the test puts into this folder."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(
        chromium, "CANDIDATES", (str(tmp_path / "shell"), str(tmp_path / "full"), "chrome")
    )
    return tmp_path


def test_the_first_candidate_that_is_there_is_taken(installed: Path) -> None:
    chrome = program(installed / "chrome")
    assert find_executable(None) == chrome
    full = program(installed / "full")
    assert find_executable(None) == full
    shell = program(installed / "shell")
    assert find_executable(None) == shell


def test_the_one_that_is_set_goes_before_all(installed: Path) -> None:
    program(installed / "shell")
    mine = program(installed / "mine")
    assert find_executable(mine) == mine


def test_debians_wrapper_stands_for_the_program_behind_it(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrapper, behind = program(installed / "wrapper"), program(installed / "behind")
    monkeypatch.setattr(chromium, "DEBIAN_WRAPPERS", {str(wrapper): str(behind)})
    assert find_executable(wrapper) == behind


def test_none_at_all_says_what_to_do(installed: Path) -> None:
    with pytest.raises(LaunchFailed) as failed:
        find_executable(None)
    assert "apt-get install chromium-headless-shell" in str(failed.value)
    assert "browser.executable" in str(failed.value)


def test_a_snap_is_passed_over(installed: Path) -> None:
    """Ubuntu's Chromium. It starts from somebody's login alone."""
    (installed / "full").symlink_to(program(installed / "snap"))
    with pytest.raises(LaunchFailed, match=r"^/.*/full is a snap, .*Google Chrome's own package"):
        find_executable(None)
    with pytest.raises(LaunchFailed, match=r"browser\.executable: .*/full is a snap, which a daem"):
        find_executable(installed / "full")
    chrome = program(installed / "chrome")
    assert find_executable(None) == chrome


def test_a_setting_that_leads_nowhere_is_named(tmp_path: Path) -> None:
    with pytest.raises(LaunchFailed, match=r"browser\.executable: there is no file .*/nothing"):
        find_executable(tmp_path / "nothing")
    with pytest.raises(LaunchFailed, match=r"browser\.executable: there is no file"):
        find_executable(tmp_path)


def test_a_setting_that_cannot_be_looked_at_is_named(tmp_path: Path) -> None:
    with pytest.raises(LaunchFailed, match=r"browser\.executable: .* cannot be looked at \(File "):
        find_executable(tmp_path / ("x" * 300))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user")
def test_one_below_a_folder_that_is_closed_to_the_daemon_is_named(tmp_path: Path) -> None:
    """As the service's user finds one in somebody's home."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    mine = program(closed / "chrome")
    found = subprocess.run(
        [sys.executable, "-c", LOOK, str(mine)], capture_output=True, text=True, check=True
    )
    assert found.stdout == (
        f"browser.executable: {mine} cannot be looked at (Permission denied); {chromium.REACH}\n"
    )


def test_a_setting_that_is_no_program_is_named(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("x")
    with pytest.raises(LaunchFailed, match=r"browser\.executable: .*/text is not executable"):
        find_executable(text)
