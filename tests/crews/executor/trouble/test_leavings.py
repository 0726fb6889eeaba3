"""What workers have left goes with the next start, and what cannot go is named."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from smartlinkd.crews.executor import _make_empty

if TYPE_CHECKING:
    from tests.crews.executor.conftest import OpenHouse

NOBODY = 65534
START_AS_NOBODY = """
import logging, os, sys
from pathlib import Path
sys.path[:0] = {path!r}
from smartlinkd.crews.executor import _make_empty
os.setgroups([]); os.setgid({user}); os.setuid({user})
logging.basicConfig(format="%(levelname)s %(message)s")
_make_empty(Path({runs!r}))
"""

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")


@pytest.fixture
def runs(open_folder: Path) -> Path:
    """Nobody's folder for workers."""
    runs = open_folder / "runs"
    runs.mkdir()
    for path in (open_folder, runs):
        os.chown(path, NOBODY, NOBODY)
    return runs


def leave(runs: Path, name: str, owner: int) -> None:
    """What a worker leaves that keeps Go's modules, which are write-protected."""
    worker = runs / name
    (worker / "go").mkdir(parents=True)
    (worker / "go" / "mod").touch()
    (worker / "go").chmod(0o555)
    for path in (worker, worker / "go", worker / "go" / "mod"):
        os.chown(path, owner, owner)


def start(runs: Path) -> str:
    """Begin as nobody; what is logged."""
    code = START_AS_NOBODY.format(path=sys.path, user=NOBODY, runs=str(runs))
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return ended.stderr


async def test_folders_that_a_loss_of_power_left_behind_are_removed(
    open_house: OpenHouse, folder: Path
) -> None:
    left = folder / "runs" / "smartlinkd-crew-left"
    left.mkdir(parents=True)
    (left / "file").write_text("x")
    await open_house()
    assert not left.exists()


@as_root
def test_what_is_write_protected_is_removed(runs: Path) -> None:
    leave(runs, "a", NOBODY)
    assert start(runs) == ""
    assert list(runs.iterdir()) == []


@as_root
def test_what_cannot_be_removed_is_named_and_keeps_nothing_else(runs: Path) -> None:
    leave(runs, "a", NOBODY)
    leave(runs, "b", 0)
    leave(runs, "c", NOBODY)
    told = f"WARNING {runs} still holds b, which a worker has left (one of 1): "
    assert start(runs).startswith(told)
    assert [each.name for each in runs.iterdir()] == ["b"]


def test_on_a_full_disk_their_folder_stays_which_could_not_be_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = tmp_path / "runs"
    (runs / "smartlinkd-crew-left" / "deep").mkdir(parents=True)
    (runs / "a file").touch()

    def no_room(*_args: Any, **_named: Any) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "mkdir", no_room)
        # As mkdir(2) does of a folder that is there, whether or not there is room.
        patch.setattr(Path, "mkdir", lambda self, **_named: None if self.is_dir() else no_room())
        _make_empty(runs)
    assert list(runs.iterdir()) == []
