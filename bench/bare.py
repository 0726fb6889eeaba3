"""A Chromium without the daemon, run as the same user as the daemon's Chromium would be."""

from __future__ import annotations

import http.client
import json
import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.daemons import PATIENCE, chromium, unsandboxed, wait_until

USER: Final = "nobody"
LOOK_EVERY: Final = 0.01
"""Seconds between polls. Each measured time is twenty times as long or more; polling more often
would take processor time from Chromium."""


@dataclass(frozen=True)
class BareChromium:
    """A running Chromium with DevTools at `port`. `began` is its start by `perf_counter`."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path
    began: float


@contextmanager
def bare_chromium(folder: Path, flags: Sequence[str]) -> Iterator[BareChromium]:
    """Start a Chromium with these flags. `folder` is created, and removed at the end."""
    folder.mkdir()
    profile = folder / "profile"
    profile.mkdir()
    other = _sandboxed_user()
    if other is not None:
        os.chown(profile, other.pw_uid, other.pw_gid)
    # The daemon's Chromium also has its sandbox wherever the machine allows one.
    sandbox_flags = ["--no-sandbox"] if unsandboxed() else []
    words = [str(chromium()), *flags, f"--user-data-dir={profile}", *sandbox_flags]
    log = folder / "log"
    began = time.perf_counter()
    with log.open("wb") as errors:
        process = subprocess.Popen(
            words,
            env={"PATH": os.defpath, "HOME": str(profile), "TMPDIR": str(profile)},
            cwd=profile,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
            user=None if other is None else other.pw_uid,
            group=None if other is None else other.pw_gid,
        )
    try:
        yield BareChromium(process, _port(profile / "DevToolsActivePort", log), log, began)
    finally:
        with suppress(ProcessLookupError):  # the whole process group has ended
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _port(file: Path, log: Path) -> int:
    """Return the port of DevTools as soon as DevTools answer."""

    def wait_for(met: Callable[[], object]) -> None:
        wait_until(met, log, every=LOOK_EVERY)

    wait_for(lambda: file.exists() and file.read_text(encoding="utf-8").count("\n") == 1)
    port = int(file.read_text(encoding="utf-8").split()[0])
    wait_for(lambda: devtools_answer(port, "GET", "/json/version") is not None)
    return port


def _sandboxed_user() -> pwd.struct_passwd | None:
    """Return another user for Chromium if we are root, which would have no sandbox; else None."""
    return pwd.getpwnam(USER) if os.geteuid() == 0 else None


def devtools_answer(port: int, method: str, path: str) -> Any:
    """Return the JSON of the answer, or None if there is no valid one yet."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request(method, path)
        return json.loads(connection.getresponse().read())
    except (ConnectionError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
