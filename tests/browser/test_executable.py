"""Which browser is started, and what is said when there is none."""

from __future__ import annotations

from pathlib import Path

import pytest
from trio.testing import MockClock

from daemon.browser import executable
from daemon.browser.errors import LaunchFailed
from daemon.browser.executable import VERSION_DEADLINE, find, version


def program(path: Path, script: str = "") -> Path:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A system with no browser but those that the test puts into this folder."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(
        executable, "CANDIDATES", (str(tmp_path / "shell"), str(tmp_path / "full"), "chrome")
    )
    return tmp_path


def test_the_first_candidate_that_is_there_is_taken(installed: Path) -> None:
    chrome = program(installed / "chrome")
    assert find(None) == chrome
    full = program(installed / "full")
    assert find(None) == full
    shell = program(installed / "shell")
    assert find(None) == shell


def test_the_one_that_is_set_goes_before_all(installed: Path) -> None:
    program(installed / "shell")
    mine = program(installed / "mine")
    assert find(mine) == mine


def test_debians_wrapper_stands_for_the_program_behind_it(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrapper, behind = program(installed / "wrapper"), program(installed / "behind")
    monkeypatch.setattr(executable, "DEBIAN_WRAPPERS", {str(wrapper): str(behind)})
    assert find(wrapper) == behind


def test_none_at_all_says_what_to_do(installed: Path) -> None:
    with pytest.raises(LaunchFailed) as failed:
        find(None)
    assert "apt-get install chromium-headless-shell" in str(failed.value)
    assert "browser.executable" in str(failed.value)


def test_a_setting_that_leads_nowhere_is_named(tmp_path: Path) -> None:
    with pytest.raises(LaunchFailed, match=r"browser\.executable: there is no file .*/nothing"):
        find(tmp_path / "nothing")
    with pytest.raises(LaunchFailed, match=r"browser\.executable: there is no file"):
        find(tmp_path)


def test_a_setting_that_is_no_program_is_named(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("x")
    with pytest.raises(LaunchFailed, match=r"browser\.executable: .*/text is not executable"):
        find(text)


async def test_the_version_is_what_the_program_says(tmp_path: Path) -> None:
    assert await version(program(tmp_path / "it", "echo 'Chromium 156.0.1.2 '")) == (
        "Chromium 156.0.1.2"
    )


@pytest.mark.parametrize(
    ("script", "said"),
    [("exit 3", "cannot be run"), ("echo hello", "does not say which version")],
)
async def test_what_is_no_browser_is_named(script: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(LaunchFailed, match=f"{said}.*browser\\.executable"):
        await version(program(tmp_path / "it", script))


async def test_what_cannot_be_executed_is_named(tmp_path: Path) -> None:
    with pytest.raises(LaunchFailed, match="cannot be run"):
        await version(tmp_path / "nothing")


async def test_a_version_that_does_not_come_is_not_waited_for(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    mock_clock.rate = VERSION_DEADLINE / 0.05
    with pytest.raises(LaunchFailed, match="gave no answer in 10 s"):
        await version(program(tmp_path / "it", "exec sleep 1000"))
