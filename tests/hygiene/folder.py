"""The folder for all temporary files of this process of the test run, and of what it starts.

It serves two ends. What is left in it was left by us, whoever else uses this machine; and its path
marks our processes: a browser has it in its command, a worker works in it, a daemon has it in its
environment. So they are known as ours also when nobody that we know is their parent any more.

It is made when this is imported, by the conftest above all others, since the daemon's modules ask
for the folder when *they* are imported. A worker of pytest-xdist has its folder beside that of the
process that started it, which removes them all. What pytest keeps of tests (`tmp_path`) stays where
it always is. A part of pytest.

Names are short, because paths of sockets end after 108 bytes, and Chromium makes long ones.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

WORKER = os.environ.get("PYTEST_XDIST_WORKER", "")


def _make() -> Path:
    if WORKER:
        folder = Path(tempfile.gettempdir() + WORKER.removeprefix("gw"))
        folder.mkdir()
    else:
        # pytest's own variable for the place of its own folders.
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
        folder = Path(tempfile.mkdtemp(prefix="slt-"))
    folder.chmod(0o1777)  # Chromium runs as another user
    os.environ["TMPDIR"] = str(folder)
    tempfile.tempdir = None
    if not WORKER:
        atexit.register(_remove, folder, os.getpid())
    return folder


def _remove(folder: Path, maker: int) -> None:
    """Remove it, and those of all workers. Not in a copy of this process, made by a fork."""
    if os.getpid() == maker:
        for one in folder.parent.glob(f"{folder.name}*"):
            shutil.rmtree(one)


FOLDER = _make()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that any user may pass through and look into; those of pytest are for one alone."""
    folder = Path(tempfile.mkdtemp(prefix="test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)
