"""Limits on the daemon's own process: who may inspect it, its descriptors, its memory.

As root the processes here run as nobody: root may look into everything.
"""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from smartlinkd.processes.process_limits import ENOUGH_DESCRIPTORS, memory_limit

ROOT = Path(__file__).parents[2]
NOBODY = 65534
AS_ROOT = os.geteuid() == 0

# Root's Python may be in a folder that is closed to others, so nobody cannot be its user from the
# start. A process that changes its user is not dumpable any more; one that has just begun is.
BEGIN = f"""
import os, sys
from smartlinkd.processes.reaper import prctl
from smartlinkd.processes.process_limits import PR_SET_DUMPABLE, make_private
if os.geteuid() == 0:
    os.setgroups([])
    os.setresgid({NOBODY}, {NOBODY}, {NOBODY})
    os.setresuid({NOBODY}, {NOBODY}, {NOBODY})
prctl(PR_SET_DUMPABLE, 1)
"""
WAIT = """
print("up", flush=True)
sys.stdin.read()
"""

Start = Callable[[str], int]


@pytest.fixture
def start() -> Iterator[Start]:
    """`start(program)`: its process id, once it is up. It has a secret in its environment."""
    with ExitStack() as running:

        def begin(program: str) -> int:
            process = running.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", BEGIN + program + WAIT],
                    cwd=ROOT,
                    env={"SECRET": "hunter2"},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                )
            )
            assert process.stdout is not None
            assert process.stdout.readline() == b"up\n"
            return process.pid

        yield begin


def of_same_user(command: str) -> subprocess.CompletedProcess[str]:
    """Return the output of a command by a shell of the same user."""
    return subprocess.run(
        ["/bin/sh", "-c", command],
        user=NOBODY if AS_ROOT else None,
        group=NOBODY if AS_ROOT else None,
        extra_groups=[] if AS_ROOT else None,
        capture_output=True,
        text=True,
        check=False,
    )


def test_process_is_open_to_its_user_at_first(start: Start) -> None:
    pid = start("")
    assert "hunter2" in of_same_user(f"cat /proc/{pid}/environ").stdout
    assert of_same_user(f"ls /proc/{pid}/fd").stdout.split()[:3] == ["0", "1", "2"]


@pytest.mark.parametrize(
    "look",
    ["cat /proc/{}/environ", ": </proc/{}/mem", "ls /proc/{}/fd", "cat /proc/{}/maps"],
)
def test_private_process_is_closed_to_its_user(start: Start, look: str) -> None:
    seen = of_same_user(look.format(start("make_private()")))
    assert seen.stdout == ""
    assert "Permission denied" in seen.stderr


# Descriptors

UNIT = ROOT / "systemd" / "smartlinkd.service"
PROGRAM = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))
from smartlinkd.processes.process_limits import raise_descriptor_limit
raise_descriptor_limit()
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize(
    ("soft", "hard", "then"),
    [
        (256, 16384, ENOUGH_DESCRIPTORS),
        (256, 4096, 4096),
        (9000, 16384, 9000),
        (256, 256, 256),
    ],
)
def test_soft_limit_is_raised_to_enough_or_the_hard_limit(soft: int, hard: int, then: int) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY != most < hard:
        pytest.skip(f"no more than {most} may be had here")
    words = [sys.executable, "-c", PROGRAM, str(soft), str(hard)]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    assert done.stdout.split() == [str(then), str(hard)]


def test_enough_descriptors_are_as_many_as_the_service_has() -> None:
    limit = re.search(r"^LimitNOFILE=(\d+)$", UNIT.read_text(encoding="utf-8"), re.MULTILINE)
    assert limit is not None
    assert int(limit[1]) == ENOUGH_DESCRIPTORS


# Memory

MIB = 1024 * 1024
MACHINE = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def own_cgroup(tmp_path: Path) -> Path:
    file = tmp_path / "own"
    file.write_text("1:name=systemd:/elsewhere\n0::/system.slice/smartlinkd.service\n")
    return file


@pytest.fixture
def cgroups(tmp_path: Path) -> Path:
    """A service in a slice, without a memory limit on either."""
    service = tmp_path / "groups/system.slice/smartlinkd.service"
    service.mkdir(parents=True)
    for folder in (service, service.parent):
        (folder / "memory.high").write_text("max\n")
        (folder / "memory.max").write_text("max\n")
    return tmp_path / "groups"


def test_memory_limit_is_the_least_of_all_groups_and_the_machines(
    own_cgroup: Path, cgroups: Path
) -> None:
    assert memory_limit(own_cgroup, cgroups) == MACHINE
    limits = {
        "system.slice/memory.max": 96,
        "system.slice/memory.high": 80,
        "system.slice/smartlinkd.service/memory.max": 64,
        "system.slice/smartlinkd.service/memory.high": 48,
    }
    for name, mebibytes in limits.items():
        (cgroups / name).write_text(f"{mebibytes * MIB}\n")
        assert memory_limit(own_cgroup, cgroups) == mebibytes * MIB


@pytest.mark.parametrize("own", [None, "", "4:memory:/of/version/1\n", "0::/gone\n"])
def test_memory_limit_without_a_group_of_version_2_is_the_machines(
    own_cgroup: Path, cgroups: Path, own: str | None
) -> None:
    if own is None:
        own_cgroup.unlink()
    else:
        own_cgroup.write_text(own)
    assert memory_limit(own_cgroup, cgroups) == MACHINE


PASSWORD_CHECK_ON_A_THREAD = """
import re, threading
from pathlib import Path
from smartlinkd.auth.passwords import hash_password
from smartlinkd.processes.process_limits import return_large_blocks

def anonymous_kib() -> int:
    return int(re.search(r"RssAnon:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

return_large_blocks()
hash_password("the first one")
before = anonymous_kib()
thread = threading.Thread(target=hash_password, args=("the second one",))
thread.start()
thread.join()
print(anonymous_kib() - before)
"""


def test_memory_of_a_password_check_goes_back_to_the_kernel() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PASSWORD_CHECK_ON_A_THREAD],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) < 4096  # a check takes 19 MiB
