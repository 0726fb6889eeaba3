"""`smartlinkd doctor`: each check by itself, and once with a real Chromium."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import IO, Literal
from uuid import UUID

import pytest

from smartlinkd.browser.chromium import find_executable
from smartlinkd.commands import doctor
from smartlinkd.config import Settings, build
from tests.config_file import HASH, WITHOUT_BROWSER

OF_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")

# A browser that has written its DevTools address and does not listen there.
GONE = rf"""
echo 'DevTools listening on ws://127.0.0.1:1/devtools/browser/{UUID(int=0)}' >&2
exec sleep 60
"""


def settings(
    directory: Path,
    executable: Path | None,
    more: Mapping[str, object] | None = None,
    browser: Mapping[str, object] | None = None,
) -> Settings:
    return build(
        {
            **(more or {}),
            "auth": {"password_hash": HASH},
            "state": {"directory": str(directory)},
            "browser": {"executable": str(executable or ""), **(browser or {})},
        }
    )


def run_doctor(
    capsys: pytest.CaptureFixture[str], directory: Path, executable: Path | None
) -> tuple[int, dict[str, str]]:
    """Return the exit code, and each check's verdict and text by name."""
    code = doctor.main(partial(settings, directory, executable))
    lines = capsys.readouterr().out.splitlines()
    return code, {line[6:19].strip(): line[:4].strip() + " " + line[21:] for line in lines}


def test_missing_chromium_fails_with_its_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, points = run_doctor(capsys, tmp_path, tmp_path / "none")
    assert code == 1
    assert points["Chromium"].startswith("FAIL browser.executable: there is no file")
    assert "apt-get install" in points["Chromium"]
    assert "sandbox" not in points
    assert points["state"] == f"ok {tmp_path} can be written to"


@pytest.mark.parametrize(
    ("directory", "told"),
    [
        ("{tmp}/a/b", "ok {tmp}/a/b is made at the first start"),
        (
            "/proc/smartlinkd",
            "FAIL /proc cannot be written to (No such file or directory); make /proc/smartlinkd "
            "for the daemon's user (install -d -m 700 -o USER), or name another one as "
            "state.directory",
        ),
        # A directory below a closed folder would be unknown, too; but root may look there.
        (
            f"/{300 * 'x'}/state",
            f"FAIL /{300 * 'x'}/state cannot be written to (File name too long); make "
            f"/{300 * 'x'}/state for the daemon's user (install -d -m 700 -o USER), or name "
            "another one as state.directory",
        ),
    ],
    ids=["missing", "impossible", "unknown"],
)
def test_state_directory_that_is_not_there_is_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], directory: str, told: str
) -> None:
    place = Path(directory.replace("{tmp}", str(tmp_path)))
    _, points = run_doctor(capsys, place, tmp_path / "none")
    assert points["state"] == told.replace("{tmp}", str(tmp_path))
    assert "Chromium" in points
    assert list(tmp_path.iterdir()) == []


def test_full_disk_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def open_full_disk(*, dir: Path, buffering: Literal[0]) -> IO[bytes]:
        # An empty file can still be made on a full disk.
        return Path("/dev/full").open("wb", buffering=buffering)

    monkeypatch.setattr(tempfile, "TemporaryFile", open_full_disk)
    code, points = run_doctor(capsys, tmp_path, tmp_path / "none")
    assert code == 1
    told = f"FAIL {tmp_path} cannot be written to (No space left on device); make room on its disk"
    assert points["state"] == told


def test_unsafe_state_directory_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tmp_path.chmod(0o777)
    code, points = run_doctor(capsys, tmp_path, tmp_path / "none")
    assert code == 1
    assert points["state"].startswith("FAIL every user can write to")
    assert f"chmod 700 {tmp_path}" in points["state"]


@OF_ROOT
def test_state_directory_of_another_user_fails_except_for_root(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root checks a service's directory, which belongs to another user."""
    os.chown(tmp_path, 65534, 65534)
    _, points = run_doctor(capsys, tmp_path, tmp_path / "none")
    good, _, told = points["state"].partition("; ")
    assert good == f"ok {tmp_path} can be written to"
    assert told.startswith(f"a daemon that runs as root is refused: {tmp_path} belongs to ")
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    code, points = run_doctor(capsys, tmp_path, tmp_path / "none")
    assert code == 1
    assert points["state"].startswith(f"FAIL {tmp_path} belongs to ")


@pytest.mark.parametrize(
    ("read", "told"),
    [
        (
            partial(build, {"server": {"bind": "8787"}}),
            [
                "FAIL  configuration  server.bind: ",
                "FAIL  configuration  auth.password_hash: is mi",
            ],
        ),
        (None, ["ok    configuration  none given, so its password and state"]),
    ],
    ids=["wrong", "none"],
)
@pytest.mark.chromium
def test_chromium_is_checked_without_a_usable_configuration(
    capsys: pytest.CaptureFixture[str],
    read: Callable[[], Settings] | None,
    told: list[str],
) -> None:
    assert doctor.main(read) == (0 if read is None else 1)
    lines = capsys.readouterr().out.splitlines()
    expected = [*told, "ok    Chromium", "ok    sandbox"]
    assert [line[: len(start)] for line, start in zip(lines, expected, strict=True)] == expected


def test_warning_of_the_configuration_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = {"server": {"trusted_proxies": ["0.0.0.0/0"]}}
    doctor.main(partial(settings, tmp_path, tmp_path / "none", more))
    told = capsys.readouterr().out
    assert "ok    configuration  warning: server.trusted_proxies: " in told


@pytest.mark.parametrize(
    ("browser", "body", "told"),
    [
        pytest.param({"user": "nobody-such"}, "exit 1", "browser.user", marks=OF_ROOT),
        ({"no_sandbox": True}, 'case "$*" in *--no-sandbox*) echo off >&2; esac; exit 1', ": off"),
        ({"start_timeout": 1}, "exec sleep 60", "was not ready within 1 s"),
        ({}, GONE, "the browser cannot be reached"),
    ],
    ids=["user", "no_sandbox", "start_timeout", "gone"],
)
def test_chromium_is_started_as_it_is_configured(
    open_folder: Path,
    capsys: pytest.CaptureFixture[str],
    browser: Mapping[str, object],
    body: str,
    told: str,
) -> None:
    chromium = open_folder / "chromium"
    chromium.write_text(f"#!/bin/sh\n{body}\n")
    chromium.chmod(0o755)
    assert doctor.main(partial(settings, open_folder, chromium, browser=browser)) == 1
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "Chromium  " in line]
    assert line.startswith("FAIL  Chromium")
    assert told in line


def test_daemon_that_asks_apis_only_needs_no_chromium(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert doctor.main(partial(settings, tmp_path, tmp_path / "none", WITHOUT_BROWSER)) == 0
    assert "ok    Chromium       not needed" in capsys.readouterr().out


@pytest.mark.chromium
def test_complete_machine_exits_with_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, points = run_doctor(capsys, tmp_path, None)
    assert code == 0
    assert re.fullmatch(r"ok (Headless)?Chrome/[0-9.]+ \(/.*\)", points["Chromium"])
    assert points["sandbox"] == "ok on: pages run confined"


@pytest.mark.chromium
def test_chromium_without_its_sandbox_fails(
    open_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrapped = open_folder / "chromium"
    wrapped.write_text(f'#!/bin/sh\nexec "{find_executable(None)}" --no-sandbox "$@"\n')
    wrapped.chmod(0o755)
    code, points = run_doctor(capsys, open_folder, wrapped)
    assert code == 1
    assert points["Chromium"].startswith("ok ")
    assert points["sandbox"].startswith("FAIL ")
