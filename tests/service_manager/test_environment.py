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

# Puts descriptors where a manager puts them, in a process of its own; then takes them over.
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


def descriptors(*closed: int, **environ: str) -> list[list[object]]:
    """Name, number, whether a child inherits it, and what it is."""
    command = [sys.executable, "-c", LOOK, json.dumps(environ), *map(str, closed)]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=30)
    found: list[list[object]] = json.loads(done.stdout)
    return found


def test_descriptors_have_their_names_and_no_child_inherits_them() -> None:
    assert descriptors(LISTEN_FDS="2", LISTEN_FDNAMES="http:cookie-7") == [
        ["http", 3, False, "/memfd:a"],
        ["cookie-7", 4, False, "/memfd:b"],
    ]


@pytest.mark.parametrize("names", ["", ":", "http", "http:"])
def test_one_without_a_name_is_unknown(names: str) -> None:
    found = descriptors(LISTEN_FDS="2", LISTEN_FDNAMES=names)
    first = names.partition(":")[0] or "unknown"
    assert [name for name, *_ in found] == [first, "unknown"]


def test_one_that_is_closed_already_is_none() -> None:
    found = descriptors(3, LISTEN_FDS="2", LISTEN_FDNAMES="http:cookie-7")
    assert [name for name, *_ in found] == ["cookie-7"]


def test_names_beyond_the_descriptors_are_none() -> None:
    assert len(descriptors(LISTEN_FDS="1", LISTEN_FDNAMES="http:cookie-7")) == 1


def test_nothing_of_it_is_left_in_the_environment() -> None:
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


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"LISTEN_FDS": "1"},
        {"LISTEN_FDS": "1", "LISTEN_PID": "1"},
        {"LISTEN_FDS": "1", "LISTEN_PID": f"{US}0"},
        {"LISTEN_FDS": "0", "LISTEN_PID": US},
        {"LISTEN_FDS": "-1", "LISTEN_PID": US},
        {"LISTEN_FDS": "many", "LISTEN_PID": US},
        {"LISTEN_FDS": "9" * 5000, "LISTEN_PID": US},
        {"LISTEN_FDS": "1025", "LISTEN_PID": US},
        {"WATCHDOG_USEC": "20000000", "WATCHDOG_PID": "1"},
        {"WATCHDOG_USEC": "0"},
        {"WATCHDOG_USEC": "soon"},
        {"WATCHDOG_USEC": "²"},
    ],
)
def test_what_is_not_for_us_or_makes_no_sense_is_not_given(environ: dict[str, str]) -> None:
    assert pop_environment(environ) == NO_SYSTEMD
    assert not environ


def test_a_watchdog_for_whoever_has_the_variable_is_ours() -> None:
    assert pop_environment({"WATCHDOG_USEC": "1500000"}).watchdog_s == 1.5
