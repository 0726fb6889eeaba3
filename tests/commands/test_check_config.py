"""`smartlinkd check-config` for crews: each fault of a broken crew with its remedy."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from smartlinkd.cli import main
from smartlinkd.commands import check_config
from smartlinkd.config import Settings

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

# Each kind of fault at least once. The parts test all faults themselves.
BROKEN = """
[[crews]]
name = "Deal Post"
runner = "command"
command = ["/bin/true"]

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
name = "gone"
runner = "command"
command = ["/nowhere/worker", "--fast"]

[[crews]]
name = "greeter"
runner = "command"
command = ["/bin/true"]

[[crews]]
name = "secretive"
runner = "command"
command = ["/bin/true"]
environment = { HOME = "hunter2", TOKEN = 3 }
environment_file = "{tmp}/crew.env"
inputs = ["topic", { name = "topic", default = "hunter2" }]
"""
TAKES_8788 = """
[[crews]]
name = "taker"
runner = "command"
command = ["/bin/sh"]
bind = "127.0.0.1:8788"
"""
TOLD = [
    "crews[2].name: must be 1 to 63 lower-case letters, digits and hyphens, "
    'the first no hyphen; for example name = "deal-post"',
    'crew "wrong-numbers": max_running: must be from 1 to 256 executions; '
    "for example max_running = 4",
    'crew "wrong-numbers": deadline: must be a number; for example deadline = 1800.0',
    'crew "misspelt": enviroment: there is no such key; did you mean environment?',
    'crew "gone": command: begins with a program that does not exist; '
    "make /nowhere/worker, or correct the path",
    'crews[6].name: is "greeter", as is that of crews[0]; give one of them another name',
    'crew "secretive": environment_file: line 2 begins with `export`; take that word away',
    'crew "secretive": inputs: names one twice; keep one of them',
    'crew "secretive": environment.HOME: is set by the daemon, for every worker anew; '
    "leave it out, or choose another name",
    'crew "secretive": environment.TOKEN: must be text in quotes; put quotes around it',
]

Write = Callable[[str], Path]


@pytest.fixture
def environment_file(tmp_path: Path) -> None:
    env = tmp_path / "crew.env"
    env.write_text("# keys\nexport KEY=hunter2\n")
    env.chmod(0o600)


def test_good_crews_are_listed_and_warnings_told(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(GOOD + '[server]\ntrusted_proxies = ["0.0.0.0/0"]\n')
    assert main(["check-config", str(path)]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"{path}: OK\n")
    assert '  crew "greeter" (command): inputs name, [tone]; at /crews/greeter, /\n' in out
    assert '  crew "counter" (command): inputs none; at /crews/counter, 127.0.0.1:8801\n' in out
    assert err.startswith("warning: server.trusted_proxies: ")
    assert "crew" not in err


@pytest.mark.parametrize(("source", "told"), [("portal", True), ("none", False)])
def test_missing_chromium_warns_where_one_is_needed(
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


@pytest.mark.parametrize(
    ("program", "warned"), [("/bin/true", False), ("/nowhere/tell", True), ("/etc/passwd", True)]
)
def test_program_for_notices_that_cannot_be_run_warns(
    write: Write, capsys: pytest.CaptureFixture[str], program: str, warned: bool
) -> None:
    assert main(["check-config", str(write(f"[notify]\ncommand = ['{program}']\n"))]) == 0
    told = "warning: notify.command: names a program that is not there" in capsys.readouterr().err
    assert told == warned


def test_unsafe_state_directory_is_refused(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(GOOD)
    (tmp_path / "state").chmod(0o777)
    assert main(["check-config", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert f"state.directory: every user can write to {tmp_path}/state; run `chmod 700" in err


@pytest.mark.usefixtures("environment_file")
def test_each_fault_of_broken_crews_has_its_remedy(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(GOOD + BROKEN)
    assert main(["check-config", str(path)]) == 1
    out, err = capsys.readouterr()
    assert out.startswith(f"{path}: starts, without 6 of its 8 crews\n")
    assert 'crew "greeter" (command)' in out
    assert 'crew "counter" (command)' in out
    told = [line for line in err.splitlines() if line.startswith("crew")]
    assert told == TOLD
    assert "hunter2" not in out + err


@pytest.mark.usefixtures("environment_file")
def test_faults_of_crews_are_listed_beside_faults_of_the_daemon(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    """The valid bind address is one that a crew wants, too."""
    path = write("[server]\nbind = '127.0.0.1:8788'\nmax_body = 1\n" + GOOD + BROKEN + TAKES_8788)
    assert main(["check-config", str(path)]) == 2
    _, err = capsys.readouterr()
    told = {line for line in err.splitlines() if line.startswith("crew")}
    taken = 'crew "taker": bind: is where the daemon itself (server.bind) listens already'
    assert told == {*TOLD, f"{taken}; choose another port"}
    assert "server.max_body: must be" in err
    assert "hunter2" not in err


@pytest.mark.usefixtures("environment_file")
def test_crews_are_not_read_without_a_state_directory(
    write: Write, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Otherwise root would look, and start a crew's interpreter as root."""
    looked: list[Settings] = []
    monkeypatch.setattr(check_config, "read_catalog", looked.append)
    monkeypatch.setenv("SMARTLINKD_STATE__DIRECTORY", "relative")
    assert main(["check-config", str(write(GOOD + BROKEN))]) == 2
    assert "SMARTLINKD_STATE__DIRECTORY: must be" in capsys.readouterr().err
    assert looked == []


ONLY_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root would look as root")


@pytest.fixture
def without_state(write: Write, tmp_path: Path) -> Write:
    def write_config(text: str) -> Path:
        path = write(text)
        (tmp_path / "state").rmdir()
        return path

    return write_config


@ONLY_ROOT
def test_root_without_a_state_directory_is_warned_of_what_was_not_checked(
    without_state: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    path = without_state(GOOD)
    assert main(["check-config", str(path)]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"{path}: OK, as far as could be looked at\n  listens on ")
    assert '  crew "greeter" (command): inputs name, [tone]; at /crews/greeter, /\n' in out
    assert "warning: state.directory: is not there yet, so its owner" in err
    assert "Not looked at: whether that user may read and start what" in err


@ONLY_ROOT
@pytest.mark.parametrize("before", ["", "[server]\nmax_body = 1\n"], ids=["good", "bad"])
def test_root_without_a_state_directory_starts_no_interpreter(
    without_state: Write, tmp_path: Path, before: str
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    python.chmod(0o755)
    (tmp_path / "project").mkdir()
    crew = "[[crews]]\nname = 'a'\nrunner = 'crewai'\nproject = '{tmp}/project'\n"
    path = without_state(before + crew + "python = '{tmp}/python'\n")
    assert main(["check-config", str(path)]) == (2 if before else 1)  # an empty project is refused
    assert not (tmp_path / "started").exists()


TOLD_OF_ALL = """
[marketplace]
portal_url = "http://127.0.0.1:1"
shop_url = "http://127.0.0.1:2"
short_urls = ["http://127.0.0.1:3"]
[products]
source = "none"
[cookie]
open_to = []
sync_key = "0123456789abcdef0123456789abcdef"
"""


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (
            "",
            [
                "  cookie endpoints open to 127.0.0.0/8, ::1/128; without a sync key",
                "  market vn at its own addresses, links by browser, products by portal",
            ],
        ),
        (
            TOLD_OF_ALL,
            [
                "  cookie endpoints open to nobody; with a sync key",
                "  market vn at http://127.0.0.1:1, links by browser, products by none",
            ],
        ),
    ],
    ids=["of the defaults", "of all else"],
)
def test_summary_says_what_the_daemon_would_do(
    write: Write, capsys: pytest.CaptureFixture[str], more: str, told: list[str]
) -> None:
    path = write(more)
    assert main(["check-config", str(path)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{path}: OK",
        f"  listens on 127.0.0.1:8787, keeps its state in {path.parent}/state",
        *told,
    ]
