"""The container that tests/systemd runs in: why there is none, and that nothing is left of one."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROGRAM = ROOT / "tests/systemd/container.py"
PATIENCE = 20.0


def start(
    temporary: Path, *arguments: str, path: str = os.environ["PATH"]
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, PROGRAM, "--wheels", "/nowhere", "--proxies", "/nowhere", *arguments],
        env={"PATH": path, "TMPDIR": str(temporary)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="others are told to be root")
def test_without_the_programs_it_is_skipped_with_the_reason(tmp_path: Path) -> None:
    with start(tmp_path, path=str(tmp_path)) as program:
        said, _ = program.communicate(timeout=PATIENCE)
    assert program.returncode == 0
    assert said == (
        "the tests under systemd are SKIPPED: there is no systemd-nspawn here; it is in Debian's "
        "systemd-container, util-linux\n"
    )


def groups() -> set[Path]:
    """Control groups of such containers."""
    return set(Path("/sys/fs/cgroup").glob("**/smartlinkd-tests-*"))


def processes() -> set[str]:
    """Those that are in one."""
    found = set()
    for path in Path("/proc").glob("[0-9]*"):
        try:
            ours = "smartlinkd-tests-" in (path / "cgroup").read_text()
            if ours and "\nState:\tZ" not in (path / "status").read_text():
                found.add(path.name)
        except OSError:
            continue  # it has ended
    return found


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("systemd-nspawn") is None,
    reason="only root can boot a container, with systemd-nspawn",
)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_of_one_that_is_stopped(number: signal.Signals, tmp_path: Path) -> None:
    before = groups(), processes()
    with start(tmp_path, "-s", "tests/systemd/sleeping.py") as program:
        assert program.stdout is not None
        for line in program.stdout:
            if "SKIPPED" in line:
                pytest.skip(line)
            if "it sleeps" in line:
                break
        else:
            pytest.fail("it has ended by itself")
        assert processes() > before[1]
        program.send_signal(number)
        program.communicate(timeout=PATIENCE)
    if number == signal.SIGKILL:
        assert program.returncode == -number
        deadline = time.monotonic() + PATIENCE
        while processes() - before[1]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        for group in sorted(groups() - before[0], reverse=True):
            for folder, _, _ in os.walk(group, topdown=False):
                Path(folder).rmdir()  # these it cannot remove any more: they are empty
    else:
        assert program.returncode == 128 + number
        assert list(tmp_path.iterdir()) == []
    assert (groups(), processes()) == before
