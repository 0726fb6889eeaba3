"""A pytest plugin: the folder for all temporary files of this process and its children.

All that is left in it is ours, and its path in a command, an environment or a working folder marks
a process as ours. This is the topmost conftest's first plugin, so that nothing has made a temporary
file before it. The process that starts xdist's workers removes their folders, too. The name is
short: a socket's path has at most 108 bytes. pytest's `tmp_path` stays elsewhere.
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
        # pytest makes its folders (tmp_path) here.
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
        folder = Path(tempfile.mkdtemp(prefix="slt-"))
    folder.chmod(0o1777)  # Chromium runs as another user
    os.environ["TMPDIR"] = str(folder)
    tempfile.tempdir = None
    if not WORKER:
        atexit.register(_remove, folder, os.getpid())
    return folder


def _remove(folder: Path, maker: int) -> None:
    """Remove the folder and those of all workers. A forked copy of this process does nothing."""
    if os.getpid() == maker:
        for one in folder.parent.glob(f"{folder.name}*"):
            shutil.rmtree(one)


FOLDER = _make()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that any user may enter and list; pytest's `tmp_path` is for one user."""
    folder = Path(tempfile.mkdtemp(prefix="test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)
