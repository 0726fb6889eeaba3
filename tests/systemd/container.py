"""Run pytest on this folder under a real systemd, in a container, and exit with its code.

    python tests/systemd/container.py --wheels FOLDER --proxies FOLDER [PYTEST ARGUMENTS]

The container has this machine's root file system with an overlay in memory, and no network but
loopback. It is in new mount and PID namespaces, whose first process the kernel kills when this
program ends (PR_SET_PDEATHSIG), so no process and no mount can be left.
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
"""Seconds for the whole run. The tests take a quarter of that on an idle machine."""
CLEANUP_DEADLINE = 10.0
"""Seconds in which killed processes have ended."""
LOOK_EVERY = 0.1
MEMORY = "3g"
"""The size of the overlay: an installed environment, profiles, journals."""
BOOT_LINES = 40
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

SHARED = "/smartlinkd-tests"
"""The path in the container of a folder that is shared with this machine."""

# The first process of the namespaces. $1 is an empty folder, $2 has the files of `write_files`, $3
# are the control groups to enter. An empty /run hides this machine's own systemd.
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
    """Run the tests and return their exit code.

    Return 77, and print why, where no container is possible.
    """
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--wheels", type=Path, required=True, help="packages that pip may install")
    parser.add_argument("--proxies", type=Path, required=True, help="nginx and Caddy, unpacked")
    chosen, for_pytest = parser.parse_known_args(arguments)
    for number in SIGNALS:
        signal.signal(number, _stop)
    try:
        with tempfile.TemporaryDirectory(prefix="smartlinkd-container-") as folder:
            container = Container(Path(folder))
            unmet_requirement = container.unmet_requirement()
            if unmet_requirement:
                print(f"the tests under systemd are SKIPPED: {unmet_requirement}", flush=True)
                return 77
            container.write_files(_unit(chosen.wheels, chosen.proxies, for_pytest))
            return container.run()
    except Stopped as stopped:
        return 128 + int(stopped.args[0])


def _stop(number: int, _: FrameType | None) -> NoReturn:
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)  # a second signal must not interrupt the end
    raise Stopped(number)


class Container:
    """A container with its folders under `folder`."""

    def __init__(self, folder: Path) -> None:
        self.root, self.layer, self.shared = (folder / n for n in ("root", "layer", "shared"))
        for each in (self.root, self.layer, self.shared):
            each.mkdir(mode=0o755)
        folder.chmod(0o755)

    def unmet_requirement(self) -> str:
        """Return why no container is possible here; "" if one is."""
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

    def write_files(self, unit: str) -> None:
        """Write the files that replace this machine's or are added to them."""
        units = self.layer / "etc/systemd/system"
        (units / "multi-user.target.wants").mkdir(parents=True)
        # Hide the units that this machine has enabled, but not those of every Debian.
        os.setxattr(units, "trusted.overlay.opaque", b"y")
        (units / f"{NAME}.service").write_text(unit)
        (units / f"multi-user.target.wants/{NAME}.service").symlink_to(f"../{NAME}.service")
        (self.layer / "etc/fstab").touch()
        generators = self.layer / "etc/systemd/system-generators"
        generators.mkdir()
        # The generator would enable SysV services.
        (generators / "systemd-sysv-generator").symlink_to("/dev/null")
        journal = self.layer / "etc/systemd/journald.conf.d"
        journal.mkdir()
        (journal / "tests.conf").write_text("[Journal]\nStorage=volatile\nRateLimitBurst=0\n")

    def run(self) -> int:
        """Boot, print the unit's output until it ends, and return its exit code."""
        log, output = self.shared / "boot", self.shared / "output"
        output.touch()
        binds = [
            f"--bind={self.shared}:{SHARED}",
            *(f"--bind-ro={path}" for path in _read_only_binds()),
        ]
        with _control_groups() as groups, log.open("wb") as boot, output.open("rb") as output_file:
            process = subprocess.Popen(
                self._command(BOOT, " ".join(map(str, groups)), *binds),
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=boot,
                stderr=subprocess.STDOUT,
            )
            try:
                in_time = _copy_output(output_file, process)
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
    """Return the unit that runs pytest. The container ends with it."""
    command = [
        *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider"),
        *("-p", "no:randomly"),  # the tests need their order
        *("--rootdir", str(ROOT), "-o", "testpaths=tests/systemd", *for_pytest),
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
    """Quote a word of a command line, as in systemd.service(5) and systemd.unit(5)."""
    for sign, written in (("\\", "\\\\"), ('"', '\\"'), ("%", "%%"), ("$", "$$")):
        word = word.replace(sign, written)
    return f'"{word}"'


def _read_only_binds() -> list[Path]:
    """Return folders that the tests need, which may be on another file system than the root's."""
    return [path for path in (ROOT, Path(sys.base_prefix)) if not path.is_relative_to("/usr")]


def _environment() -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "MEMORY": MEMORY, "LANG": "C.UTF-8"}


def _copy_output(output_file: BinaryIO, process: subprocess.Popen[bytes]) -> bool:
    """Copy the output until the process ends. False when it did not end within DEADLINE."""
    deadline = time.monotonic() + DEADLINE
    while True:
        ended = process.poll() is not None
        sys.stdout.buffer.write(output_file.read())
        sys.stdout.flush()
        if ended or time.monotonic() > deadline:
            return ended
        time.sleep(LOOK_EVERY)


@contextmanager
def _control_groups() -> Iterator[list[Path]]:
    """Yield new groups for the container, one in each hierarchy that systemd uses.

    A group can be removed once all its processes have ended.
    """
    groups = [parent / f"{NAME}-{os.getpid()}" for parent in _own_groups()]
    for group in groups:
        group.mkdir()
    try:
        yield groups
    finally:
        deadline = time.monotonic() + CLEANUP_DEADLINE
        while groups and time.monotonic() < deadline:
            groups = [group for group in groups if not _removed(group)]
            time.sleep(LOOK_EVERY if groups else 0)
        if groups:
            print(f"control groups that could not be removed: {groups}", file=sys.stderr)


def _own_groups() -> Iterator[Path]:
    """Yield this process's groups in the unified and in systemd's named hierarchy (cgroups(7))."""
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
