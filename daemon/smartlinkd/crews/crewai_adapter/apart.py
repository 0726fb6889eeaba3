"""What a run writes, kept apart from other runs; and locks for what they share."""

from __future__ import annotations

import fcntl
import hashlib
import importlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from .words import Unusable


def keep_apart(crew: Any, home: Path) -> None:
    """Have the files that it writes in its folder, apart from other runs': the project may be
    read-only. One with an absolute path stays where it is; CrewAI leaves the `/` at its beginning
    to no `output_file` but one with a placeholder."""
    for task in crew.tasks:
        if task.output_file and not Path(task.output_file).is_absolute():
            task.output_file = str(home / task.output_file)
            task.create_directory = True  # those that are there are in the project
    log = getattr(crew, "_file_handler", None)  # of `output_log_file`
    if log is not None and not Path(log._path).is_absolute():
        (home / log._path).parent.mkdir(parents=True, exist_ok=True)
        log._path = str(home / log._path)
    agents = (crew.manager_agent, *crew.agents, *(task.agent for task in crew.tasks))
    for owner in (crew, *agents):  # some may be None, and some the same
        checkpoint: Any = getattr(owner, "checkpoint", None)
        if (location := getattr(checkpoint, "location", None)) is not None:
            checkpoint.location = str(home / location)  # one that is absolute stays
    with suppress(ImportError):  # an older CrewAI keeps no long results of tools
        kept: Any = importlib.import_module("crewai.utilities.tool_result_artifacts")
        if hasattr(kept, "_TOOL_RESULT_TEMP_DIR"):
            kept._TOOL_RESULT_TEMP_DIR = home  # in /tmp they would stay when a run is stopped


def guard_files(crew: Any, home: Path) -> None:
    """Have the run end before its first task where an input would lead an `output_file` elsewhere.

    CrewAI lets no `..` into it, but for what comes in with the inputs. Hooks of the project's can
    change them until CrewAI fills them in, so what is looked at is what has come of that. To be
    called when those that were relative are below `home`. Raises Unusable.
    """
    guarded = [(task, task.output_file) for task in crew.tasks if "{" in (task.output_file or "")]
    if not guarded:
        return
    fill_in = getattr(crew, "_interpolate_inputs", None)
    if fill_in is None:
        raise Unusable(
            "this CrewAI does not show where an output_file with a placeholder leads; take the "
            "placeholder out of it, or another version of CrewAI"
        )

    def fill_in_and_check(inputs: dict[str, Any]) -> None:
        """Raises Unusable."""
        fill_in(inputs)
        for task, template in guarded:
            path = Path(task.output_file)
            if Path(template).is_relative_to(home):
                strays = not path.resolve().is_relative_to(home.resolve())
            else:
                strays = ".." in path.parts
            if strays:
                raise Unusable(f"the inputs lead the output_file of a task elsewhere: {path}")

    crew._interpolate_inputs = fill_in_and_check


def share_locks(home: Path) -> None:
    """Have runs wait for one another where they share CREWAI_STORAGE_DIR: CrewAI's own locks are
    files in TMPDIR, of which each run has its own."""
    storage = Path(os.environ["CREWAI_STORAGE_DIR"])
    if not storage.is_absolute() or storage.is_relative_to(home):
        return  # nobody shares it
    try:
        store = importlib.import_module("crewai_core.lock_store")
    except ImportError:  # an older CrewAI
        return

    @contextmanager
    def held(name: str, *, timeout: float) -> Iterator[None]:
        """Raises TimeoutError. What is the run's own leaves nothing in the storage."""
        is_own = str(home) in name or str(home.resolve()) in name
        folder = (home if is_own else storage) / ".locks"
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / hashlib.sha256(os.fsencode(name)).hexdigest()).open("a") as file:
            _lock(file, name, timeout)
            try:
                yield
            finally:  # to close the file would do, but for a forked child that has it open, too
                fcntl.flock(file, fcntl.LOCK_UN)

    if (replace := getattr(store, "set_lock_backend", None)) is not None:
        replace(held)


def _lock(file: IO[str], name: str, timeout: float) -> None:
    until = time.monotonic() + timeout
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise TimeoutError(f"the lock {name} was not free within {timeout:g} s") from None
        time.sleep(0.05)  # flock(2) waits for ever or not at all
