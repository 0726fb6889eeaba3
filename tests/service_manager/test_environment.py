"""systemd's variables are read, and removed from the environment of children."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from smartlinkd.systemd.environment import NO_SYSTEMD, pop_environment

ROOT = Path(__file__).parents[2]
US = str(os.getpid())

# Puts descriptors where systemd puts them, in a process of its own; then reads them.
LOOK = """
import fcntl, json, os, sys
from smartlinkd.systemd.environment import pop_environment
ours = [os.memfd_create(name) for name in "ab"]
moved = [fcntl.fcntl(each, fcntl.F_DUPFD, 100) for each in ours]
for number, each in enumerate(moved, 3):
    os.dup2(each, number, inheritable=True)
for number in sys.argv[2:]:
    os.close(int(number))
os.environ.update({"LISTEN_PID": str(os.getpid()), **json.loads(sys.argv[1])})
environment = pop_environment(os.environ)
print(json.dumps([(each.name, each.number, os.get_inheritable(each.number), os.readlink(
    f"/proc/self/fd/{each.number}").partition(" ")[0]) for each in environment.descriptors]))
"""
A, B = [3, False, "/memfd:a"], [4, False, "/memfd:b"]  # number, is inherited, and file


@pytest.mark.parametrize(
    ("count", "names", "closed", "found"),
    [
        ("2", "http:cookie-7", [], [["http", *A], ["cookie-7", *B]]),
        ("2", "http", [], [["http", *A], ["unknown", *B]]),
        ("2", ":", [], [["unknown", *A], ["unknown", *B]]),
        ("2", "http:cookie-7", ["3"], [["cookie-7", *B]]),
        ("1", "http:cookie-7", [], [["http", *A]]),
    ],
    ids=["both", "one name", "empty names", "closed before", "names beyond"],
)
def test_descriptors_have_their_names_and_are_not_inherited(
    count: str, names: str, closed: list[str], found: list[list[object]]
) -> None:
    environ = json.dumps({"LISTEN_FDS": count, "LISTEN_FDNAMES": names})
    command = [sys.executable, "-c", LOOK, environ, *closed]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=30)
    assert json.loads(done.stdout) == found


def test_variables_of_systemd_are_removed_from_the_environment() -> None:
    environ = {
        "NOTIFY_SOCKET": "/run/systemd/notify",
        "WATCHDOG_USEC": "20000000",
        "WATCHDOG_PID": US,
        "LISTEN_PID": "1",
        "LISTEN_FDS": "2",
        "LISTEN_FDNAMES": "a:b",
        "FDSTORE": "8",
        "HOME": "/root",
        "CREDENTIALS_DIRECTORY": "/run/credentials/smartlinkd",
    }
    environment = pop_environment(environ)
    assert (environment.notify_socket, environment.watchdog_s) == ("/run/systemd/notify", 20.0)
    assert sorted(environ) == ["CREDENTIALS_DIRECTORY", "HOME"]
    assert pop_environment({"WATCHDOG_USEC": "1500000"}).watchdog_s == 1.5


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"LISTEN_FDS": "1"},
        {"LISTEN_FDS": "1", "LISTEN_PID": "1"},
        {"LISTEN_FDS": "0", "LISTEN_PID": US},
        {"WATCHDOG_USEC": "20000000", "WATCHDOG_PID": "1"},
        {"WATCHDOG_USEC": "0"},
    ],
)
def test_variables_for_another_process_count_as_unset(environ: dict[str, str]) -> None:
    assert pop_environment(environ) == NO_SYSTEMD
    assert not environ
