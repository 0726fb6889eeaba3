"""The state directory is one daemon's at a time."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from daemon.state import LOCK_NAME, StateUnusable, claim

HOLD = """
import sys, pathlib
from daemon.state import claim
with claim(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def is_held(directory: Path) -> bool:
    try:
        with claim(directory):
            return False
    except StateUnusable:
        return True


def test_a_missing_directory_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    directory = tmp_path / "var" / "state"
    with claim(directory):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        assert stat.S_IMODE((directory / LOCK_NAME).stat().st_mode) == 0o600


def test_one_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "auth.json").write_text("kept")
    tmp_path.chmod(0o750)
    with claim(tmp_path):
        assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o750
    assert (tmp_path / "auth.json").read_text() == "kept"


def test_two_cannot_have_it_at_once(tmp_path: Path) -> None:
    text = f"another daemon is using {tmp_path};"
    with claim(tmp_path), pytest.raises(StateUnusable, match=text), claim(tmp_path):
        pytest.fail("it was given out twice")


def test_it_is_free_again_after_the_block(tmp_path: Path) -> None:
    def fail_within() -> None:
        with claim(tmp_path):
            assert is_held(tmp_path)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_within()
    assert not is_held(tmp_path)


def test_it_is_free_again_when_its_holder_was_killed(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(StateUnusable), claim(tmp_path):
            pass
        holder.kill()
    with claim(tmp_path):
        pass


def test_a_child_process_does_not_inherit_it(tmp_path: Path) -> None:
    with claim(tmp_path):
        child = subprocess.Popen(
            [sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.read()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            close_fds=False,
        )
        assert child.stdout is not None
        child.stdout.readline()
        assert is_held(tmp_path)
    with child:
        assert not is_held(tmp_path)


@pytest.mark.parametrize("place", ["a file", "below a file", "not to be written"])
def test_what_cannot_be_used_is_told(tmp_path: Path, place: str) -> None:
    file = tmp_path / "file"
    file.touch()
    # Root may write anywhere, but nobody makes files in there.
    directory = {"a file": file, "below a file": file / "state"}.get(place, Path("/proc/self"))
    text = r"^state\.directory: .* cannot be used \(.*writable"
    with pytest.raises(StateUnusable, match=text), claim(directory):
        pytest.fail("it was given out")
