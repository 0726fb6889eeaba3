"""The view of `check-config`, started by root, after it has become the service's user.

Each check is a new process, because a process cannot become root again.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

NOBODY = 65534
NAMELESS = 61184  # the first dynamic user of systemd, which has a name while its service runs
ROOT = Path(__file__).parents[2]

LOOK = """
import os, sys
from pathlib import Path
from smartlinkd.commands import check_config
from smartlinkd.validation import BadValue
from smartlinkd.crews.catalog.checks import check_folder, check_program

private, hidden = Path(sys.argv[1]), [sys.argv[2] + "-none", sys.argv[2]]
if sys.argv[4:]:
    os.setuid(int(sys.argv[4]))
for problem in check_config.become_the_daemon(private / "state", private=private, hidden=hidden):
    print(problem)
print(os.getuid(), os.getgid(), os.getgroups())
for check in (check_folder, lambda path: check_program(str(path), {})):
    try:
        check(Path(sys.argv[3]))
    except BadValue as fault:
        print(fault.fault, fault.remedy, sep="; ")
    else:
        print("is seen")
"""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder that is readable for all; a second hidden folder does not exist."""
    (tmp_path / "state").mkdir()
    os.chown(tmp_path / "state", NOBODY, NOBODY)
    (tmp_path / "home/crew").mkdir(parents=True)
    return tmp_path / "home"


# systemd shares mounts; in a container they may be private already.
WHERE_MOUNTS_ARE_SHARED = ("unshare", "--mount", "--propagation", "shared")


def look(
    private: Path, home: Path, folder: Path, *user: str, by: tuple[str, ...] = ()
) -> list[str]:
    """Return the lines that the check prints for `user`, or for root."""
    ended = subprocess.run(
        [*by, sys.executable, "-c", LOOK, str(private), str(home), str(folder), *user],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    return ended.stdout.splitlines()


@pytest.mark.parametrize("user", [NOBODY, NAMELESS], ids=["that runs", "that does not run"])
def test_dynamic_user_sees_no_home(home: Path, user: int) -> None:
    os.chown(home.parent / "state", user, user)
    who, folder, program = look(home.parent, home, home / "crew")
    if who.startswith("crews: cannot be looked at"):
        pytest.skip("nothing can be mounted here")
    assert who == f"{user} {user} [{user}]"
    says = f"is below {home}, of which the service sees nothing; move it to /srv"
    assert folder.startswith(f"names a folder that {says}")
    assert program.startswith(f"begins with a program that {says}")
    (home.parent / "link").symlink_to(home / "crew")
    assert says in look(home.parent, home, home.parent / "link")[1]
    (home.parent / "srv").mkdir()
    assert "is seen" in look(home.parent, home, home.parent / "srv")


def test_home_is_hidden_from_the_check_only(home: Path) -> None:
    if subprocess.run([*WHERE_MOUNTS_ARE_SHARED, "true"], check=False).returncode != 0:
        pytest.skip("nothing can be mounted here")
    then = ("sh", "-c", '"$@" && ls "$0"', str(home))
    told = look(home.parent, home, home / "crew", by=(*WHERE_MOUNTS_ARE_SHARED, *then))
    assert f"is below {home}" in told[1]
    assert told[-1] == "crew"


def test_container_that_cannot_hide_homes_is_told(home: Path) -> None:
    cannot = ("setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin")
    told, who, folder, _ = look(home.parent, home, home / "crew", by=cannot)
    assert told == (
        "crews: cannot be looked at as the service sees them (Operation not permitted); "
        f"keep nothing that they need below {home}-none, {home}"
    )
    assert (who, folder) == (f"{NOBODY} {NOBODY} [{NOBODY}]", "is seen")


def test_check_by_another_user_stays_that_user(home: Path) -> None:
    groups = os.getgroups()
    who, folder, _ = look(home.parent, home, home / "crew", str(NOBODY))
    assert (who, folder) == (f"{NOBODY} {os.getgid()} {groups}", "is seen")


def test_permanent_user_sees_homes_by_their_modes(home: Path) -> None:
    (home.parent / "private").mkdir()
    private = home.parent / "private"
    (private / "state").symlink_to(home.parent / "state")
    assert "is seen" in look(private, home, home / "crew")
