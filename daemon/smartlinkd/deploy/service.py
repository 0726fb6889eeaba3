"""systemd's side of an installation: the switch to a version, its start, and its proof.

`systemctl` is the interface: it is on every machine that this is for, and says what is wrong in
words that its owner can look up.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Final
from urllib.error import HTTPError
from urllib.request import ProxyHandler, build_opener

from smartlinkd.deploy.units import UNIT, ServicePaths
from smartlinkd.networks import Bind

# The folders that systemd/install.sh makes: versions, by the day, and one for what is temporary.
VERSION: Final = re.compile(r"(?:\d{4}-\d\d-\d\d|tmp)\.\w{6}")

ANSWERS_WITHIN: Final = 20.0
BROWSER_WITHIN: Final = 60.0
LOOK_EVERY: Final = 0.2
LAST_LINES: Final = 20
"""Of its log, when it does not start."""
HEALTH_LIMIT: Final = 5.0

# What is listened at, and where that is reached from here.
_EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared with
# pip may have needed the proxy that root's environment names. None leads to this machine's daemon.
_DIRECT: Final = build_opener(ProxyHandler({}))


class NotInstalled(Exception):  # noqa: N818 - it names what is the matter
    """Something of the installation did not work; the text says what, and how things are now."""


def systemctl(*words: str) -> str:
    """Run it; what it says. Raises `NotInstalled`."""
    ended = _run("systemctl", "--no-ask-password", *words)
    if ended.returncode != 0:
        raise NotInstalled(f"systemctl {' '.join(words)}: {ended.stderr.strip()}")
    return ended.stdout.strip()


def current(paths: ServicePaths) -> Path | None:
    """The environment that the units start the daemon from, if there is one."""
    folder = paths.current.resolve()
    return folder if paths.current.is_symlink() and folder.is_dir() else None


def switch(paths: ServicePaths, environment: Path) -> None:
    """Let the units start the daemon from `environment` from now on."""
    fresh = paths.current.with_name(".current.new")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(environment.name)
    fresh.rename(paths.current)


def is_there(paths: ServicePaths) -> bool:
    """Whether it runs, or is started with the machine."""
    return _is("active", paths) or _is("enabled", paths)


def others(paths: ServicePaths) -> list[str]:
    """The services that run the same version, and run now, but for this one."""
    patterns = (f"{UNIT}.service", f"{UNIT}@*.service")
    said = systemctl("list-units", "--plain", "--no-legend", "--state=active", *patterns)
    running = [line.split()[0] for line in said.splitlines()]
    return [unit for unit in running if unit != paths.service]


def start(paths: ServicePaths, *, moved: bool = False) -> None:
    """Start it, or start it anew, and have it start with the machine.

    A socket that has `moved` to another address has to be closed first, and a service whose socket
    closes has to be stopped. Raises `NotInstalled`.
    """
    systemctl("daemon-reload")
    systemctl("enable", "--quiet", paths.socket, paths.service)
    if moved:
        systemctl("stop", paths.socket, paths.service)
    _start("start", paths.socket)
    restart(paths.service)


def restart(unit: str) -> None:
    """Start it anew. Raises `NotInstalled`."""
    _start("restart", unit)


def _start(verb: str, unit: str) -> None:
    try:
        systemctl(verb, unit)
    except NotInstalled as error:
        raise NotInstalled(f"{error}\n{last_words(unit)}") from None


def prove(paths: ServicePaths, bind: Bind, *, with_browser: bool) -> bool:
    """Wait until it is active and answers; then whether its browser, if any, becomes ready, too.

    Raises `NotInstalled` when it does not answer.
    """
    if not _until(ANSWERS_WITHIN, lambda: _is("active", paths) and _health(bind).get("ok") is True):
        state = _run("systemctl", "is-active", paths.service).stdout.strip()
        raise NotInstalled(
            f"{paths.service} is {state} and does not answer at {bind} within {ANSWERS_WITHIN:g} s"
            f"\n{last_words(paths.service)}"
        )
    if not with_browser:
        return True
    return _until(BROWSER_WITHIN, lambda: _health(bind).get("browserReady") is True)


def last_words(unit: str) -> str:
    """The end of its log, or why that is not here: it is told beside what is worse."""
    try:
        ended = _run("journalctl", "--no-pager", "--quiet", "-n", str(LAST_LINES), "-u", unit)
    except OSError as fault:
        return f"its log cannot be read: {fault}"
    return ended.stdout.rstrip()


def old_versions(paths: ServicePaths) -> Iterator[Path]:
    """The environments that are not in use, and what installations have left that were killed."""
    # By name: the folders above may be links to another disk.
    current = paths.current.readlink().name
    for folder in paths.versions.iterdir():
        if VERSION.fullmatch(folder.name) and folder.name != current:
            yield folder


def _is(what: str, paths: ServicePaths) -> bool:
    return _run("systemctl", f"is-{what}", "--quiet", paths.service).returncode == 0


def _health(bind: Bind) -> dict[str, object]:
    """What it says of itself; nothing while it does not answer."""
    there = Bind(_EVERYWHERE.get(bind.host, bind.host), bind.port)
    try:
        with _DIRECT.open(f"http://{there}/api/health", timeout=HEALTH_LIMIT) as answer:
            health = json.load(answer)
    except HTTPError as refusal:  # an answer, too, which is open until it is closed
        refusal.close()
        return {}
    except (OSError, HTTPException, ValueError):  # it may end in the midst of its answer
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
