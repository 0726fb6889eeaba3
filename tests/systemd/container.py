"""A real systemd to test with: the first process of a container over this machine's own files.

    python tests/systemd/container.py --wheels FOLDER --proxies FOLDER [PYTEST ARGUMENTS]

What runs in it is pytest on this folder, as a unit of its own. Its output is shown here as it
comes, and its exit code is this program's. The container sees this machine's root file system, and
what it writes goes to memory. Its network is loopback alone. None of the services that this
machine has enabled are started in it.

The problem is what is left when things go wrong: a container whose manager is killed goes on, and
mounts stay. The choice: everything is in a mount and a process namespace of its own, whose first
process dies with this one, by the kernel's hand and however this one dies. With a namespace's
first process all others in it end, and all its mounts. Only empty folders are left to be removed.
Rejected: to stop the container by signals and then unmount, which are four steps in the right
order, each of which may fail.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import BinaryIO, NoReturn

ROOT = Path(__file__).parents[2]
NAME = "smartlinkd-tests"

DEADLINE = 900.0
"""Seconds for all of it. The tests take a quarter of that, on a machine with nothing else to do."""
LEFT = 10.0
"""Seconds that what was killed may take to be gone."""
LOOK_EVERY = 0.1
MEMORY = "3g"
"""The most that is written to the overlay: an installed environment, profiles, journals."""
BOOT_LINES = 40
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

SHARED = "/smartlinkd-tests"
"""The folder that both sides see, as it is called inside."""

# The first process of the namespaces. $1 is an empty folder, $2 what is laid over this machine's
# files, $3 the control groups to go into. The manager of a machine that runs systemd is not to be
# spoken to: /run is hidden.
OVERLAY = r"""
set -eu
root=$1 layer=$2 groups=$3
shift 3
for group in $groups; do echo 0 >"$group/cgroup.procs"; done
mount -t tmpfs -o "size=$MEMORY" tmpfs "$root"
mkdir "$root/up" "$root/work" "$root/root"
cp -a "$layer/." "$root/up"
mount -t overlay overlay -o "lowerdir=/,upperdir=$root/up,workdir=$root/work" "$root/root"
mount -t tmpfs tmpfs /run
"""
BOOT = f"""{OVERLAY}
exec systemd-nspawn --quiet --directory="$root/root" --machine={NAME} --boot --register=no \\
    --keep-unit --private-network --console=pipe --resolv-conf=off --timezone=off \\
    --link-journal=no --settings=no "$@"
"""


class Stopped(BaseException):
    """A signal told this program to end."""


def main(arguments: Sequence[str]) -> int:
    """Run the tests in a container; their exit code. Where there can be none: 0, and why."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--wheels", type=Path, required=True, help="what pip may install")
    parser.add_argument("--proxies", type=Path, required=True, help="nginx and Caddy, unpacked")
    chosen, for_pytest = parser.parse_known_args(arguments)
    for number in SIGNALS:
        signal.signal(number, _stop)
    try:
        with tempfile.TemporaryDirectory(prefix="smartlinkd-container-") as folder:
            container = Container(Path(folder))
            why_not = container.why_not()
            if why_not:
                print(f"the tests under systemd are SKIPPED: {why_not}", flush=True)
                return 0
            container.lay_out(_unit(chosen.wheels, chosen.proxies, for_pytest))
            return container.run()
    except Stopped as stopped:
        return 128 + int(stopped.args[0])


def _stop(number: int, _: FrameType | None) -> NoReturn:
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)  # it is ending
    raise Stopped(number)


class Container:
    """One container, its folders under `folder`."""

    def __init__(self, folder: Path) -> None:
        self.root, self.layer, self.shared = (folder / n for n in ("root", "layer", "shared"))
        for each in (self.root, self.layer, self.shared):
            each.mkdir(mode=0o755)
        folder.chmod(0o755)

    def why_not(self) -> str:
        """Why there can be no container here; "" when there can."""
        if os.geteuid() != 0:
            return "only root can boot a container: sudo ./run test --systemd"
        for program in ("systemd-nspawn", "setpriv", "unshare"):
            if shutil.which(program) is None:
                return (
                    f"there is no {program} here; it is in Debian's systemd-container, util-linux"
                )
        tried = subprocess.run(
            self._command(OVERLAY, ""), env=_environment(), capture_output=True, check=False
        )
        return tried.stderr.decode().strip() if tried.returncode else ""

    def lay_out(self, unit: str) -> None:
        """Write what the container has beside this machine's files, or in their place."""
        units = self.layer / "etc/systemd/system"
        (units / "multi-user.target.wants").mkdir(parents=True)
        # What this machine has enabled is hidden; what every Debian starts is left.
        os.setxattr(units, "trusted.overlay.opaque", b"y")
        (units / f"{NAME}.service").write_text(unit)
        (units / f"multi-user.target.wants/{NAME}.service").symlink_to(f"../{NAME}.service")
        (self.layer / "etc/fstab").touch()
        generators = self.layer / "etc/systemd/system-generators"
        generators.mkdir()
        (generators / "systemd-sysv-generator").symlink_to("/dev/null")  # it enables, too
        journal = self.layer / "etc/systemd/journald.conf.d"
        journal.mkdir()
        (journal / "tests.conf").write_text("[Journal]\nStorage=volatile\nRateLimitBurst=0\n")

    def run(self) -> int:
        """Boot, and show what the unit writes until it ends; its exit code."""
        log, output = self.shared / "boot", self.shared / "output"
        output.touch()
        binds = [f"--bind={self.shared}:{SHARED}", *(f"--bind-ro={path}" for path in _needed())]
        with _control_groups() as groups, log.open("wb") as boot, output.open("rb") as said:
            process = subprocess.Popen(
                self._command(BOOT, " ".join(map(str, groups)), *binds),
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=boot,
                stderr=subprocess.STDOUT,
            )
            try:
                in_time = _show(said, process)
            finally:
                process.kill()
                process.wait()
        if not in_time:
            print(f"the container did not end within {DEADLINE:g} s and was killed", flush=True)
            return 1
        if not output.stat().st_size:
            lines = log.read_text(errors="replace").splitlines()[-BOOT_LINES:]
            print("the container ran no test:", *lines, sep="\n", flush=True)
            return process.returncode or 1
        return process.returncode

    def _command(self, script: str, groups: str, *more: str) -> list[str]:
        return [
            *("setpriv", "--pdeathsig", "KILL"),
            *("unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"),
            *("sh", "-c", script, "sh", str(self.root), str(self.layer), groups, *more),
        ]


def _unit(wheels: Path, proxies: Path, for_pytest: Sequence[str]) -> str:
    """The unit that the container is for. When it ends, the container does."""
    named = any((ROOT / word.partition("::")[0]).exists() for word in for_pytest)
    command = [
        *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider"),
        *("-p", "no:randomly"),  # one machine, on which things are done in their order
        *("--rootdir", str(ROOT), *for_pytest, *([] if named else ["tests/systemd"])),
    ]
    return f"""\
[Unit]
After=basic.target dbus.service
SuccessAction=exit-force
FailureAction=exit-force
[Service]
Type=exec
WorkingDirectory={ROOT}
Environment=SMARTLINKD_CONTAINER={SHARED} SMARTLINKD_PROXIES={proxies}
Environment=PIP_NO_INDEX=1 PIP_FIND_LINKS={wheels} PYTHONDONTWRITEBYTECODE=1 HOME=/root LANG=C.UTF-8
ExecStart={" ".join(map(_quoted, command))}
StandardOutput=append:{SHARED}/output
StandardError=append:{SHARED}/output
"""


def _quoted(word: str) -> str:
    """A word of a command line as systemd.service(5) and systemd.unit(5) have it."""
    for sign, written in (("\\", "\\\\"), ('"', '\\"'), ("%", "%%"), ("$", "$$")):
        word = word.replace(sign, written)
    return f'"{word}"'


def _needed() -> list[Path]:
    """What the tests need that may be on another file system than the root's. Read-only."""
    return [path for path in (ROOT, Path(sys.base_prefix)) if not path.is_relative_to("/usr")]


def _environment() -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "MEMORY": MEMORY, "LANG": "C.UTF-8"}


def _show(said: BinaryIO, process: subprocess.Popen[bytes]) -> bool:
    """Copy what is written until the process ends. False when it did not within the deadline."""
    deadline = time.monotonic() + DEADLINE
    while True:
        ended = process.poll() is not None
        sys.stdout.buffer.write(said.read())
        sys.stdout.flush()
        if ended or time.monotonic() > deadline:
            return ended
        time.sleep(LOOK_EVERY)


@contextmanager
def _control_groups() -> Iterator[list[Path]]:
    """Groups of its own for the container, in each hierarchy that systemd works with.

    When they can be removed nothing of the container runs any more.
    """
    groups = [parent / f"{NAME}-{os.getpid()}" for parent in _own_groups()]
    for group in groups:
        group.mkdir()
    try:
        yield groups
    finally:
        deadline = time.monotonic() + LEFT
        while groups and time.monotonic() < deadline:
            groups = [group for group in groups if not _removed(group)]
            time.sleep(LOOK_EVERY if groups else 0)
        if groups:
            print(f"left over: {groups}", file=sys.stderr)


def _own_groups() -> Iterator[Path]:
    """Our place in the unified hierarchy and in that of systemd's name (cgroups(7))."""
    mounts = Path("/sys/fs/cgroup")
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, place = line.split(":", 2)
        for mount, of in (
            (mounts, ""),
            (mounts / "unified", ""),
            (mounts / "systemd", "name=systemd"),
        ):
            if controllers == of and (mount / "cgroup.procs").exists():
                yield mount / place.lstrip("/")


def _removed(group: Path) -> bool:
    for folder, _, _ in os.walk(group, topdown=False):
        with suppress(OSError):
            Path(folder).rmdir()
    return not group.exists()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
