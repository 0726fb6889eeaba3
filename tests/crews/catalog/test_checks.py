"""The checks that a crew's program, folder and interpreter can be used."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from smartlinkd.crews.catalog.checks import check_program, check_python
from smartlinkd.validation import BadValue
from tests.processes.family import running

PATIENCE = 10.0
Script = Callable[..., Path]


@pytest.fixture
def script(tmp_path: Path) -> Script:
    def write(text: str, mode: int = 0o755) -> Path:
        path = tmp_path / "program"
        path.write_text(text)
        path.chmod(mode)
        return path

    return write


def fault(check: Callable[..., None], *arguments: object) -> str:
    with pytest.raises(BadValue) as raised:
        check(*arguments)
    assert raised.value.remedy
    return raised.value.fault


def test_program_that_can_be_started_passes(script: Script) -> None:
    path = script("#!/bin/sh\n")
    check_program(str(path), {})
    check_program("sh", {})
    check_program(path.name, {"PATH": str(path.parent)})


def test_program_is_looked_up_on_the_workers_path(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = script("#!/bin/sh\n")
    monkeypatch.setenv("PATH", str(path.parent))
    assert "not on the worker's PATH (/bin:/usr/bin)" in fault(check_program, path.name, {})
    assert "(/nowhere)" in fault(check_program, "sh", {"PATH": "/nowhere"})


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("bin/x", "relative path"),
        ("./x", "relative path"),
        ("/nowhere/x", "does not exist"),
        ("/tmp", "is no file"),
        ("/dev/null", "is no file"),
        ("/etc/passwd/x", "does not exist"),
        ("/" + 300 * "x", "may not look at"),
    ],
)
def test_unusable_program_is_named(program: str, says: str) -> None:
    assert says in fault(check_program, program, {})


@pytest.mark.parametrize(
    ("first", "interpreter"),
    [
        ("#!/no/such/sh", "'/no/such/sh'"),
        ("#! /no/such/sh -e", "'/no/such/sh'"),
        ("#!/bin/sh\r", r"'/bin/sh\r'"),
    ],
)
def test_script_without_its_interpreter_is_named(
    script: Script, first: str, interpreter: str
) -> None:
    path = script(f"{first}\n")
    assert fault(check_program, str(path), {}) == (
        f"begins with a script whose interpreter {interpreter} does not exist"
    )


AS_NOBODY = """
import os, sys
sys.path[:0] = {path!r}
from smartlinkd.validation import BadValue
from smartlinkd.crews.catalog.checks import check_program
os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    check_program({program!r}, {{}})
except BadValue as fault:
    print(fault.fault, fault.remedy, sep="; ")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize(
    ("mode", "says"),
    [
        (0o700, "the user nobody may not look at (Permission denied); let that user pass through"),
        (0, "is below {home}, of which the service sees nothing; move it to /srv"),
    ],
)
def test_script_whose_interpreter_is_not_readable_is_named(
    open_folder: Path, mode: int, says: str
) -> None:
    """As it is when it was tried with a virtual environment in somebody's home."""
    home, program = open_folder / "home", open_folder / "program"
    (home / "venv").mkdir(parents=True)
    (home / "venv" / "python").symlink_to("/bin/sh")
    program.write_text(f"#!{home}/venv/python\n")
    program.chmod(0o755)
    home.chmod(mode)
    code = AS_NOBODY.format(path=sys.path, program=str(program))
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    begins = f"begins with a script whose interpreter '{home}/venv/python' "
    assert ended.stdout.startswith(begins + says.format(home=home))


def test_file_that_is_not_executable_is_named(script: Script) -> None:
    told = fault(check_program, str(script("#!/bin/sh\n", 0o644)), {})
    assert "may not execute" in told


# --- interpreters --------------------------------------------------------------------------------


@pytest.fixture
def crewai(tmp_path: Path) -> Path:
    """A folder in which there is a package of that name, which cannot be imported."""
    package = tmp_path / "lib" / "crewai"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('imported')")
    return package.parent


def test_interpreter_with_crewai_passes_without_importing_it(crewai: Path) -> None:
    check_python(Path(sys.executable), {"PYTHONPATH": str(crewai)})


def test_interpreter_without_crewai_is_named_with_a_remedy() -> None:
    with pytest.raises(BadValue) as raised:
        check_python(Path(sys.executable), {})
    assert raised.value.fault == "has no package crewai"
    assert raised.value.remedy == f"install it: {sys.executable} -m pip install crewai"


def test_interpreter_is_probed_without_the_daemons_environment(
    crewai: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(crewai))
    assert fault(check_python, Path(sys.executable), {}) == "has no package crewai"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("#!/bin/sh\nexit 0\n", "does not run as Python does"),
        ("#!/bin/sh\nexit 3\n", "does not run as Python does"),
        ("#!/bin/sh\nkill -9 $$\n", "does not run as Python does"),
        ("#!/nowhere/python\n", "cannot be started"),
        ("\x7fELF", "cannot be started"),
    ],
)
def test_program_that_is_no_interpreter_is_named(script: Script, text: str, says: str) -> None:
    assert says in fault(check_python, script(text), {})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("echo $$ > ${0}.pid; exec sleep 100", "did not come to an end within 2 s"),
        ("sleep 100 & echo $! > ${0}.pid; wait", "did not come to an end within 2 s"),
        (f'sleep 100 & echo $! > ${{0}}.pid; exec {sys.executable} "$@"', "has no package crewai"),
    ],
)
def test_processes_of_an_interpreter_are_ended(script: Script, text: str, says: str) -> None:
    path = script(f"#!/bin/sh\n{text}\n")
    probe = partial(check_python, timeout_s=2.0)  # its start is in it
    assert fault(probe, path, {}) == says
    assert is_gone(int(Path(f"{path}.pid").read_text()))


def is_gone(pid: int) -> bool:
    """Return True once it has ended; the process that it was left to may reap it later."""
    until = time.monotonic() + PATIENCE
    while running(pid) and time.monotonic() < until:
        pass
    return not running(pid)
