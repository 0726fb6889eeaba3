"""Checks that a crew's program, folder and interpreter can be used.

Each check blocks, runs with the rights of its caller (the daemon's are those of its workers), and
raises a `BadValue` whose sentence goes on from the key's name.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from trio.from_thread import check_cancelled

from smartlinkd.path_checks import hidden_above, mode_of
from smartlinkd.validation import BadValue

PROBE_TIMEOUT_S: Final = 10.0
"""An interpreter on a slow disk, read for the first time, takes one or two."""
PROBE_INTERVAL_S: Final = 0.005
LONGEST_FIRST_LINE: Final = 256
"""Bytes of a script's first line that the kernel reads."""

# A project may hold keys (.env), so the remedy is not to let everybody read it.
LET_US_READ: Final = "make the daemon's user the owner of it all, or let that user's group read it"

# Exit codes of the probe, which Python itself does not use.
_FOUND = 90
_MISSING = 91
# This does not import crewai, which takes seconds and runs the code of 137 packages.
_PROBE = (
    "import importlib.util as util\n"
    f"raise SystemExit({_FOUND} if util.find_spec('crewai') else {_MISSING})"
)


def check_program(program: str, environment: Mapping[str, str]) -> None:
    """Raise a `BadValue` unless this word would start a worker."""
    if "/" not in program:
        path = environment.get("PATH", os.defpath)
        if shutil.which(program, path=path) is None:
            raise BadValue(
                f"begins with a program that is not on the worker's PATH ({path})",
                "write its whole path, as `command -v` tells it",
            )
        return
    if not program.startswith("/"):
        raise BadValue(
            "begins with a relative path, and a worker starts in an empty folder of its own",
            "write the whole path, from / on",
        )
    _check_executable(Path(program), "begins with a program that")
    _check_interpreter(Path(program))


def _check_executable(path: Path, subject: str) -> None:
    """Raise a `BadValue` unless we may execute this file. `subject` is how its sentence begins."""
    mode = _mode_of(path, subject)
    if mode is None:
        raise BadValue(f"{subject} does not exist", f"make {path}, or correct the path")
    if not stat.S_ISREG(mode):
        raise BadValue(f"{subject} is no file", "correct the path")
    if not os.access(path, os.X_OK):
        raise BadValue(f"{subject} {_us()} may not execute", f"chmod a+rx {path}")


def _check_interpreter(script: Path) -> None:
    """Raise a `BadValue` if it is a script whose interpreter is missing (execve(2))."""
    try:
        with script.open("rb") as file:
            first = file.readline(LONGEST_FIRST_LINE)
    except OSError:
        return  # a program that may be executed cannot always be read
    words = re.split(rb"[ \t\n]+", first.removeprefix(b"#!").strip(b" \t"))
    if not first.startswith(b"#!") or not words[0]:
        return
    interpreter = os.fsdecode(words[0])  # with a \r, where that was an editor's end of a line
    subject = f"begins with a script whose interpreter {interpreter!r}"
    if _mode_of(Path(interpreter), subject) is None:
        raise BadValue(
            f"{subject} does not exist", f"install that, or correct the first line of {script}"
        )


def check_folder(path: Path) -> None:
    """Raise a `BadValue` unless we may look into this folder."""
    mode = _mode_of(path, "names a folder that")
    if mode is None or not stat.S_ISDIR(mode):
        there = "a folder that does not exist" if mode is None else "a file"
        raise BadValue(f"names {there}", "name the folder of the CrewAI project")
    if not os.access(path, os.R_OK | os.X_OK):
        raise BadValue(f"names a folder that {_us()} may not read", LET_US_READ)


def check_python(
    path: Path,
    environment: Mapping[str, str],
    *,
    may_start: bool = True,
    timeout_s: float = PROBE_TIMEOUT_S,
) -> None:
    """Raise a `BadValue` unless this is a Python that runs and finds CrewAI.

    If this is a thread of trio's, a cancellation of its task ends the wait for the interpreter.

    Args:
        may_start: False to check only that the interpreter is there.
    """
    _check_executable(path, "names a program that")
    if not may_start:
        return
    try:
        code = _probe(path, environment, timeout_s)
    except TimeoutError:
        fault = f"did not come to an end within {timeout_s:g} s"
        raise BadValue(fault, f"this may pass; else see what `{path} -c pass` does") from None
    except OSError as error:
        fault = f"cannot be started ({error.strerror})"
        remedy = f"see what `{path} -c pass` does; if it was moved, make its environment anew"
        raise BadValue(fault, remedy) from None
    if code == _MISSING:
        raise BadValue("has no package crewai", _how_to_install(path))
    if code != _FOUND:
        raise BadValue("does not run as Python does", f"see what `{path} -c pass` says")


def _probe(python: Path, environment: Mapping[str, str], timeout_s: float) -> int:
    """Return the probe's exit code. Its whole process group ends with it.

    Raises `OSError`, of which `TimeoutError` is one.
    """
    until = time.monotonic() + timeout_s
    with subprocess.Popen(  # noqa: S603 - the operator's own interpreter
        [python, "-c", _PROBE],
        env={"PATH": os.defpath, "LANG": "C.UTF-8", **environment, "HOME": "/nonexistent"},
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        try:
            # It is not reaped yet, or its number could be another's when its group is killed.
            while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                if time.monotonic() > until:
                    raise TimeoutError
                with suppress(RuntimeError):  # this is no thread of trio's
                    check_cancelled()
                time.sleep(PROBE_INTERVAL_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        return process.wait()


def _how_to_install(python: Path) -> str:
    # exists() would raise for a path that may not be looked at.
    if os.access(python.parent.parent / "pyvenv.cfg", os.F_OK):
        return f"install it: {python} -m pip install crewai"
    # A distribution's Python takes no packages of pip's (PEP 668).
    return "make a virtual environment, install crewai there, and name its bin/python"


def _mode_of(path: Path, subject: str) -> int | None:
    """Return `mode_of(path)`. Raises `BadValue` in the place of `OSError`."""
    try:
        return mode_of(path)
    except OSError as error:
        if above := hidden_above(path):
            raise BadValue(
                f"{subject} is below {above}, of which the service sees nothing",
                "move it to /srv, or to another place that every service sees",
            ) from None
        raise BadValue(
            f"{subject} {_us()} may not look at ({error.strerror})",
            "let that user pass through every folder above it (chmod a+x)",
        ) from None


def _us() -> str:
    """Return the user that checks, who should be the one that the daemon runs as."""
    uid = os.geteuid()
    try:
        return f"the user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"the user {uid}"
