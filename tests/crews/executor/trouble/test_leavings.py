"""What workers have left goes with the next start, and what cannot go is named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.crews.executor.conftest import OpenHouse

NOBODY = 65534
START_AS_NOBODY = """
import logging, os, sys
from pathlib import Path
sys.path[:0] = {path!r}
from daemon.crews.executor import _make_empty
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
    told = f"WARNING {runs} still holds b, which a worker has left (one of 1): the folder cannot be"
    assert start(runs).startswith(told)
    assert [each.name for each in runs.iterdir()] == ["b"]
