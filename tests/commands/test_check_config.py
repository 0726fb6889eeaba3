"""`smartlinkd check-config` on crews: each fault of each broken one with its remedy."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from daemon.auth.passwords import hash_password
from daemon.cli import main

HASH = hash_password("correct horse")
NOBODY = 65534

GOOD = """
[[crews]]
name = "greeter"
runner = "command"
command = ["/bin/true"]
default = true
inputs = ["name", { name = "tone", default = "warm" }]

[[crews]]
name = "counter"
runner = "command"
command = ["true"]
bind = "127.0.0.1:8801"
"""

# Ten of them. What is told of each: the fault, and what to do.
BROKEN = """
[[crews]]
name = "Deal Post"
runner = "command"
command = ["/bin/true"]

[[crews]]
name = "no-command"
runner = "command"

[[crews]]
name = "wrong-numbers"
runner = "command"
command = ["/bin/true"]
max_running = 0
deadline = "1800"

[[crews]]
name = "misspelt"
runner = "command"
command = ["/bin/true"]
enviroment = { KEY = "hunter2" }

[[crews]]
name = "two-minds"
runner = "crewai"
command = ["/bin/true"]
project = "{tmp}/half"
python = "{tmp}/python"

[[crews]]
name = "gone"
runner = "command"
command = ["/nowhere/worker", "--fast"]

[[crews]]
name = "greeter"
runner = "command"
command = ["/bin/true"]

[[crews]]
name = "crowded"
runner = "command"
command = ["/bin/true"]
default = true
bind = "0.0.0.0:8801"
tools = ["shell"]

[[crews]]
name = "half-a-project"
runner = "crewai"
project = "{tmp}/half"
python = "{tmp}/python"

[[crews]]
name = "secretive"
runner = "command"
command = ["/bin/true"]
environment = { HOME = "hunter2", TOKEN = 3 }
environment_file = "{tmp}/crew.env"
inputs = ["topic", { name = "topic", default = "hunter2" }]
"""
TOLD = [
    (
        "crews[2].name: must be 1 to 63 lower-case letters, digits and hyphens, "
        "the first no hyphen",
        'for example name = "deal-post"',
    ),
    (
        'crew "no-command": command: is missing, and is needed by runner = "command"',
        'for example command = ["/usr/bin/python3", "/srv/crews/greeter.py"]',
    ),
    (
        'crew "wrong-numbers": max_running: must be from 1 to 256 executions',
        "for example max_running = 4",
    ),
    (
        'crew "wrong-numbers": deadline: must be a number',
        "for example deadline = 1800.0",
    ),
    (
        'crew "misspelt": enviroment: there is no such key',
        "did you mean environment?",
    ),
    (
        'crew "two-minds": command: is of no use to runner = "crewai"',
        'take it out, or write runner = "command"',
    ),
    (
        'crew "two-minds": python: names a program that does not exist',
        "make {tmp}/python, or correct the path",
    ),
    (
        'crew "two-minds": project: src/news/config/tasks.yaml is not YAML in line 2: '
        "expected the node content, but found '<stream end>'",
        "mend that file",
    ),
    (
        'crew "gone": command: begins with a program that does not exist',
        "make /nowhere/worker, or correct the path",
    ),
    (
        'crews[8].name: is "greeter", as is that of crews[0]',
        "give one of them another name",
    ),
    (
        'crew "crowded": default: is true, and "greeter" is the default already',
        "leave one of the two",
    ),
    (
        'crew "crowded": bind: is where the crew "counter" listens already',
        "choose another port",
    ),
    (
        'crew "crowded": tools[0]: is no tool',
        "there is convert_links",
    ),
    (
        'crew "half-a-project": python: names a program that does not exist',
        "make {tmp}/python, or correct the path",
    ),
    (
        'crew "half-a-project": project: src/news/config/tasks.yaml is not YAML in line 2: '
        "expected the node content, but found '<stream end>'",
        "mend that file",
    ),
    (
        'crew "secretive": environment_file: line 2 begins with `export`',
        "take that word away",
    ),
    (
        'crew "secretive": inputs: names one twice',
        "keep one of them",
    ),
    (
        'crew "secretive": environment.HOME: is set by the daemon, for every worker anew',
        "leave it out, or choose another name",
    ),
    (
        'crew "secretive": environment.TOKEN: must be text in quotes',
        "put quotes around it",
    ),
]

# With a user of systemd's, whose state lies where only root gets to, and who sees no homes.
DYNAMIC = """
import sys
from pathlib import Path
from daemon.cli import main
from daemon.commands import as_service
as_service.PRIVATE, as_service.HIDDEN = Path(sys.argv[1]), [sys.argv[2]]
sys.exit(main(["check-config", sys.argv[3]]))
"""

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_config(crews: str) -> Path:
        path = tmp_path / "config.toml"
        path.write_text(
            f'[auth]\npassword_hash = "{HASH}"\n[state]\ndirectory = "{tmp_path}/state"\n'
            + crews.replace("{tmp}", str(tmp_path))
        )
        path.chmod(0o600)
        return path

    (tmp_path / "state").mkdir()
    return write_config


@pytest.fixture
def project(tmp_path: Path) -> Path:
    config = tmp_path / "half" / "src" / "news" / "config"
    config.mkdir(parents=True)
    (config.parent / "crew.py").touch()
    (config / "tasks.yaml").write_text("find:\n  description: [")
    env = tmp_path / "crew.env"
    env.write_text("# keys\nexport KEY=hunter2\n")
    env.chmod(0o600)
    return tmp_path / "half"


def test_good_crews_are_told(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(GOOD)
    assert main(["check-config", str(path)]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"{path}: OK\n")
    assert '  crew "greeter" (command): inputs name, [tone]; at /crews/greeter, /\n' in out
    assert '  crew "counter" (command): inputs none; at /crews/counter, 127.0.0.1:8801\n' in out
    assert "crew" not in err


@pytest.mark.parametrize(("source", "told"), [("portal", True), ("none", False)])
def test_a_chromium_that_is_not_there_is_told_to_who_needs_one(
    write: Write, capsys: pytest.CaptureFixture[str], source: str, told: bool
) -> None:
    asks_apis = f"""
[browser]
executable = "{{tmp}}/none"
[links]
source = "open_api"
[products]
source = "{source}"
[open_api]
app_id = "123456"
secret = "hunter2"
"""
    assert main(["check-config", str(write(asks_apis))]) == 0
    assert ("warning: browser.executable" in capsys.readouterr().err) is told


def test_a_state_directory_that_the_daemon_would_refuse_is_told(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(GOOD)
    (tmp_path / "state").chmod(0o777)
    assert main(["check-config", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert f"state.directory: every user can write to {tmp_path}/state; run `chmod 700" in err


@pytest.mark.usefixtures("project")
def test_every_fault_of_ten_broken_crews_is_told_with_its_remedy(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(GOOD + BROKEN)
    assert main(["check-config", str(path)]) == 1
    out, err = capsys.readouterr()
    assert out.startswith(f"{path}: starts, without 10 of its 12 crews\n")
    assert 'crew "greeter" (command)' in out
    assert 'crew "counter" (command)' in out
    told = [line for line in err.splitlines() if line.startswith("crew")]
    assert told == [f"{fault}; {remedy}".replace("{tmp}", str(tmp_path)) for fault, remedy in TOLD]
    assert "hunter2" not in out + err


def test_a_file_that_would_not_start_the_daemon_tells_its_crews_as_well(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write("[server]\ngrace = -1\n[[crews]]\nname = 'a'\n")
    assert main(["check-config", str(path)]) == 2
    _, err = capsys.readouterr()
    assert 'crew "a": runner: is missing' in err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_root_without_a_state_directory_is_warned(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(GOOD)
    (tmp_path / "state").rmdir()
    assert main(["check-config", str(path)]) == 0
    assert "warning: state.directory: is not there yet" in capsys.readouterr().err


def by_root(
    path: Path, how: tuple[str, ...] = ("-m", "daemon", "check-config")
) -> subprocess.CompletedProcess[str]:
    """In a process of its own, which does not become root again."""
    return subprocess.run(
        [sys.executable, *how, str(path)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        check=False,
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_crews_are_looked_at_by_who_the_daemon_runs_as(write: Write, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    (closed / "crew.py").touch()
    whoami = tmp_path / "python"
    whoami.write_text(f"#!/bin/sh\nid -u > {tmp_path}/state/seen\n")
    whoami.chmod(0o755)
    os.chown(tmp_path / "state", NOBODY, NOBODY)
    path = write(
        "[[crews]]\nname = 'a'\nrunner = 'crewai'\n"
        "project = '{tmp}/closed'\npython = '{tmp}/python'\n"
    )
    path.chmod(0o644)
    ended = by_root(path)
    assert ended.returncode == 1
    assert 'crew "a": project: names a folder that the user nobody may not read' in ended.stderr
    assert (tmp_path / "state" / "seen").read_text() == f"{NOBODY}\n"


@pytest.fixture
def secretive(tmp_path: Path) -> Path:
    """A good configuration of an owner who keeps every file from others, and no credential."""
    path = tmp_path / "config.toml"
    path.write_text(
        f'[auth]\npassword_hash_file = "{tmp_path}/hash"\n'
        f'[state]\ndirectory = "{tmp_path}/state"\n'
        "[[crews]]\nname = 'a'\nrunner = 'command'\ncommand = ['/bin/true']\n"
        f'environment_file = "{tmp_path}/env"\n'
    )
    (tmp_path / "hash").write_text(HASH)
    (tmp_path / "env").write_text("KEY=hunter2\n")
    for name in ("hash", "env"):
        (tmp_path / name).chmod(0o600)
    (tmp_path / "state").mkdir()
    os.chown(tmp_path / "state", NOBODY, NOBODY)
    return path


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_secrets_that_only_root_can_read_are_told(secretive: Path) -> None:
    folder = secretive.parent
    ended = by_root(secretive)
    told = ended.stderr.splitlines()
    assert ended.returncode == 2
    assert told == [
        "smartlinkd: 2 problem(s) in the configuration",
        "auth.password_hash_file: cannot be opened (Permission denied); make it a credential: "
        f"move it to {folder}/credentials/auth.password_hash, and take this key out",
        'crew "a": environment_file: cannot be opened (Permission denied); let the daemon\'s user '
        "read it, or make it a credential (docs/operating.md)",
    ]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_crews_file_that_only_root_can_read_costs_that_crew_alone(secretive: Path) -> None:
    (secretive.parent / "credentials").mkdir(mode=0o700)
    text = secretive.read_text()
    secretive.write_text(text.replace("[auth]\npassword_hash_file", "#"))
    (secretive.parent / "hash").rename(secretive.parent / "credentials/auth.password_hash")
    ended = by_root(secretive)
    assert ended.returncode == 1
    assert ended.stdout.startswith(f"{secretive}: starts, without 1 of its 1 crews\n")
    assert 'crew "a": environment_file: cannot be opened (Permission denied)' in ended.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_configuration_that_only_root_can_read_is_told(secretive: Path) -> None:
    os.chown(secretive.parent / "hash", NOBODY, NOBODY)
    os.chown(secretive.parent / "env", NOBODY, NOBODY)
    assert by_root(secretive).returncode == 0
    secretive.chmod(0o600)
    ended = by_root(secretive)
    assert ended.returncode == 2
    assert f"{secretive}: cannot be opened (Permission denied); let the daemon's" in ended.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_draft_at_home_and_a_file_in_the_state_are_no_faults(secretive: Path) -> None:
    """The service will read the one elsewhere, and is shown the other by systemd."""
    folder = secretive.parent
    for name in ("home", "private"):
        (folder / name).mkdir(mode=0o700)
    (folder / "hash").rename(folder / "state/hash")
    os.chown(folder / "state/hash", NOBODY, NOBODY)
    os.chown(folder / "env", NOBODY, NOBODY)
    (folder / "state").rename(folder / "private/state")
    (folder / "state").symlink_to(folder / "private/state")
    draft = folder / "home/config.toml"
    draft.write_text(secretive.read_text().replace("/hash", "/state/hash"))
    ended = by_root(draft, ("-c", DYNAMIC, str(folder / "private"), str(folder / "home")))
    if "cannot be looked at as the service sees them" in ended.stderr:
        pytest.skip("nothing can be mounted here")
    assert ended.stderr == ""
    assert ended.returncode == 0
