"""A Chromium by itself, as the same user as the daemon's, and with a sandbox where that has one."""

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

from bench.daemons import PATIENCE, browser_flags, chromium, until

USER: Final = "nobody"
LOOK_EVERY: Final = 0.01
"""Seconds: what is measured here takes some twenty times as long and more, and who looks more often
takes a processor from it."""


@dataclass(frozen=True)
class Bare:
    """One whose DevTools answer at `port`. `began` is when its process did, by `perf_counter`."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path
    began: float


@contextmanager
def bare(folder: Path, flags: Sequence[str]) -> Iterator[Bare]:
    """One with these flags, in a folder that it makes and removes."""
    folder.mkdir()
    profile = folder / "profile"
    profile.mkdir()
    other = _other_user()
    if other is not None:
        os.chown(profile, other.pw_uid, other.pw_gid)
    # The daemon's has its sandbox, too, wherever there can be one.
    sandbox_flags = [] if other is not None else browser_flags()
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
        yield Bare(process, _port(profile / "DevToolsActivePort", log), log, began)
    finally:
        with suppress(ProcessLookupError):  # all of it has ended
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _port(file: Path, log: Path) -> int:
    """Where DevTools answer, once they do."""

    def wait_for(met: Callable[[], object]) -> None:
        until(met, log, every=LOOK_EVERY)

    wait_for(lambda: file.exists() and file.read_text(encoding="utf-8").count("\n") == 1)
    port = int(file.read_text(encoding="utf-8").split()[0])
    wait_for(lambda: answer(port, "GET", "/json/version") is not None)
    return port


def _other_user() -> pwd.struct_passwd | None:
    """Who a browser of root's has to be, to have a sandbox."""
    return pwd.getpwnam(USER) if os.geteuid() == 0 else None


def answer(port: int, method: str, path: str) -> Any:
    """The JSON that is answered; None when nobody listens yet."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request(method, path)
        return json.loads(connection.getresponse().read())
    except (ConnectionError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
