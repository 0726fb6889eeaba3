"""The service by `systemctl`: switch to a version, start it, prove that it works."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import httpx

from smartlinkd.deploy.units import UNIT, ServicePaths
from smartlinkd.net.addresses import Bind

# The folders that systemd/install.sh makes: one a version, and one for temporary files.
VERSION: Final = re.compile(r"(?:\d{4}-\d\d-\d\d|tmp)\.\w{6}")

ANSWERS_WITHIN: Final = 20.0  # seconds, as the next two
BROWSER_WITHIN: Final = 60.0
LOOK_EVERY: Final = 0.2
LAST_LINES: Final = 20
"""Lines of the log that are shown if the service does not start."""
HEALTH_LIMIT: Final = 5.0  # seconds for an answer

# Addresses of a listener, and where this machine reaches it.
_EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared with


class InstallFailed(Exception):  # noqa: N818 - a statement about the outcome
    """A step of the installation failed. The text says which, and how things are now."""


def systemctl(*words: str) -> str:
    """Run `systemctl` and return its output. Raises `InstallFailed` if it fails."""
    ended = _run("systemctl", "--no-ask-password", *words)
    if ended.returncode != 0:
        raise InstallFailed(f"systemctl {' '.join(words)}: {ended.stderr.strip()}")
    return ended.stdout.strip()


def current_version(paths: ServicePaths) -> Path | None:
    """Return the environment that the units start the daemon from; None if there is none."""
    folder = paths.current.resolve()
    return folder if paths.current.is_symlink() and folder.is_dir() else None


def activate(paths: ServicePaths, environment: Path) -> None:
    """Make the units start the daemon from `environment` from now on."""
    fresh = paths.current.with_name(".current.new")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(environment.name)
    fresh.rename(paths.current)


def is_installed(paths: ServicePaths) -> bool:
    """Return True if the service runs, or starts with the machine."""
    return _is("active", paths) or _is("enabled", paths)


def other_services(paths: ServicePaths) -> list[str]:
    """Return the other running services, which share the version."""
    patterns = (f"{UNIT}.service", f"{UNIT}@*.service")
    said = systemctl("list-units", "--plain", "--no-legend", "--state=active", *patterns)
    running = [line.split()[0] for line in said.splitlines()]
    return [unit for unit in running if unit != paths.service]


def start(paths: ServicePaths, *, is_moved: bool = False) -> None:
    """Start or restart the service, and have it start with the machine.

    Args:
        is_moved: True if the socket has another address. Then socket and service are stopped first.

    Raises `InstallFailed`.
    """
    systemctl("daemon-reload")
    systemctl("enable", "--quiet", paths.socket, paths.service)
    if is_moved:
        systemctl("stop", paths.socket, paths.service)
    _start("start", paths.socket)
    restart(paths.service)


def restart(unit: str) -> None:
    """Restart a unit. Raises `InstallFailed`."""
    _start("restart", unit)


def _start(verb: str, unit: str) -> None:
    try:
        systemctl(verb, unit)
    except InstallFailed as error:
        raise InstallFailed(f"{error}\n{log_tail(unit)}") from None


def wait_until_ready(
    paths: ServicePaths,
    bind: Bind,
    *,
    with_browser: bool,
    answers_within_s: float = ANSWERS_WITHIN,
    browser_within_s: float = BROWSER_WITHIN,
) -> bool:
    """Wait until the service answers, then for its browser. Return False if that is not ready.

    Raises `InstallFailed` if the service does not answer.
    """

    def answers() -> bool:
        return _is("active", paths) and _health(bind).get("ok") is True

    if not _until(answers_within_s, answers):
        state = _run("systemctl", "is-active", paths.service).stdout.strip()
        raise InstallFailed(
            f"{paths.service} is {state} and does not answer at {bind} within "
            f"{answers_within_s:g} s\n{log_tail(paths.service)}"
        )
    if not with_browser:
        return True
    return _until(browser_within_s, lambda: _health(bind).get("browserReady") is True)


def log_tail(unit: str) -> str:
    """Return the end of a unit's log, or why it cannot be read. Used in error texts."""
    try:
        ended = _run("journalctl", "--no-pager", "--quiet", "-n", str(LAST_LINES), "-u", unit)
    except OSError as fault:
        return f"its log cannot be read: {fault}"
    return ended.stdout.rstrip()


def store_copies(paths: ServicePaths) -> dict[Path, int]:
    """Return the copies of stores that upgrades of all services keep, with their inodes."""
    found = sorted(paths.root.glob(f"var/lib/{UNIT}*/journal.sqlite3.version-*"))
    return {copy: copy.stat().st_ino for copy in found}


def put_back_stores(paths: ServicePaths, before: Mapping[Path, int]) -> None:
    """Put each copy that is not of `before` in the place of its store, with its service stopped.

    Raises:
        InstallFailed: a service cannot be stopped.
        OSError: the files cannot be replaced.
    """
    for unit in sorted({f"{copy.parent.name}.service" for copy in _new_copies(paths, before)}):
        systemctl("stop", unit)  # it may have been copying until now, so look again
    for copy in _new_copies(paths, before):
        store, _, version = copy.name.partition(".version-")
        if version.isdecimal():
            for end in ("-wal", "-shm"):
                copy.with_name(store + end).unlink(missing_ok=True)
            copy.replace(copy.with_name(store))
        else:  # the copying was interrupted, before anything was changed
            copy.unlink()


def _new_copies(paths: ServicePaths, before: Mapping[Path, int]) -> list[Path]:
    return [copy for copy, inode in store_copies(paths).items() if before.get(copy) != inode]


def old_versions(paths: ServicePaths) -> Iterator[Path]:
    """Yield the environments that are not in use, and the leftovers of killed installations."""
    # Compare names: the folders above may be links to another disk.
    current = paths.current.readlink().name
    for folder in paths.versions.iterdir():
        if VERSION.fullmatch(folder.name) and folder.name != current:
            yield folder


def _is(what: str, paths: ServicePaths) -> bool:
    return _run("systemctl", f"is-{what}", "--quiet", paths.service).returncode == 0


def _health(bind: Bind) -> dict[str, object]:
    """Return the answer of /api/health; {} if there is none."""
    there = Bind(_EVERYWHERE.get(bind.host, bind.host), bind.port)
    try:
        # Root's environment may name a proxy for pip. None leads to this machine's daemon.
        answer = httpx.get(f"http://{there}/api/health", timeout=HEALTH_LIMIT, trust_env=False)
        health = answer.json()
    except (httpx.HTTPError, ValueError):  # the service may end while it answers
        return {}
    return health if isinstance(health, dict) else {}


def _until(limit: float, is_so: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + limit
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(LOOK_EVERY)
    return True


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - ours
