"""The programs of a soak: a daemon with its observer, and a sandbox for the portal.

Each is a process of its own with a folder of its own, so that what one leaves behind can be told
from what others do, and what one needs is not measured with the other. The daemon is configured by
a file, as its owner would do it. Two things are as no owner would have them: Chromium is never
replaced for its size or age, and the tables that the daemon remembers results in are small. The
first would hide a leak; full tables are bounded by themselves, and small ones are full when the
warm-up is over.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from daemon.auth.passwords import hash_password
from daemon.browser.chromium import LaunchSettings, launch
from daemon.browser.errors import LaunchFailed
from daemon.sandbox.batch import Origins
from tests.config_file import Tables, write_config
from tests.soak.worker import WORKER

ROOT: Final = Path(__file__).parents[2]
PASSWORD: Final = "correct horse battery staple"

CREW: Final = "soak"
WARM: Final = 4
"""Accounts whose pages are kept open."""
REMEMBERED: Final = 100
"""Links, and products, and executions of the crew: a table of that size is full in a minute."""
NEVER_BY_AGE: Final = 30 * 24 * 3600
NEVER_BY_SIZE: Final = 64 * 1024**3
"""The largest that the configuration takes."""

START: Final = 60.0
STOP: Final = 60.0
LOOK_EVERY: Final = 0.02


class NotStarted(Exception):  # noqa: N818 - it names what happened
    """A program did not come up; the text holds what it said."""


class Program:
    """A Python module as a process. What it writes is in `log` and `output`.

    A terminal's signals are not for it: whoever started it ends it in its turn (`ending_signals`).
    Of the environment it has the path, a place for its temporary files, and `also`.
    """

    def __init__(
        self,
        module: str,
        *words: str,
        folder: Path,
        log: Path,
        also: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.log, self.output = log, folder / "output"
        with self.log.open("wb") as errors, self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, *words],
                cwd=ROOT,
                env={"PATH": os.environ["PATH"], "TMPDIR": str(folder), **also},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                process_group=0,
            )

    def wait_for(self, pattern: str, file: Path) -> re.Match[str]:
        """Wait until it has written `pattern`. Raises `NotStarted`."""
        deadline = time.monotonic() + START
        while time.monotonic() < deadline and self.process.poll() is None:
            if found := re.search(pattern, file.read_text(encoding="utf-8")):
                return found
            time.sleep(LOOK_EVERY)
        raise NotStarted(self.log.read_text(encoding="utf-8")[-2000:])

    def stop(self) -> int:
        """Have it end, as a service manager does; its exit code."""
        self.process.terminate()
        try:
            return self.process.wait(STOP)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


def ending_signals() -> list[signal.Signals]:
    """By which a run of such programs is to end: Ctrl-C, a kill, a terminal that is closed.

    What is ignored stays so: the last one by nohup(1), the first by a shell without job control.
    """
    each = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    return [one for one in each if signal.getsignal(one) is not signal.SIG_IGN]


@contextmanager
def sandbox(folder: Path) -> Iterator[Origins]:
    """A sandbox; where its three listeners are."""
    folder.mkdir()
    program = Program("daemon", "sandbox", "--port", "0", folder=folder, log=folder / "log")
    try:
        pattern = r"portal +(http://\S+)/ .*\n +shop +(http://\S+)/\n +short links +(http://\S+)/\n"
        yield Origins(*program.wait_for(pattern, program.output).groups())
    finally:
        program.stop()


@dataclass
class Daemon:
    """A daemon that runs. `observer` is the socket in its process."""

    program: Program
    folder: Path
    url: str
    observer: Path

    @property
    def pid(self) -> int:
        return self.program.process.pid


@contextmanager
def daemon(
    folder: Path, portal: Origins, *, no_sandbox: bool, log: Path, module: str
) -> Iterator[Daemon]:
    """A daemon that works with `portal`; `module` is what runs it (see `observed.py`)."""
    folder.mkdir()
    config, observer = folder / "config.toml", folder / "observer"
    write_config(config, _configuration(folder / "state", portal, no_sandbox=no_sandbox))
    words = (str(observer), "serve", "--config", str(config))
    program = Program(module, *words, folder=folder, log=log)
    try:
        url = program.wait_for(r'"serving on (http://[0-9.:]+)"', program.log)[1]
        yield Daemon(program, folder, url, observer)
    finally:
        program.stop()


async def needs_no_sandbox() -> bool:
    """Whether Chromium starts here only without its sandbox.

    The soak may go on without: it opens no page but its own portal's.
    """
    try:
        async with launch(LaunchSettings()):
            pass
    except LaunchFailed:
        return True
    return False


def _configuration(state: Path, portal: Origins, *, no_sandbox: bool) -> Tables:
    return {
        # Logins come from as many addresses as they say.
        "server": {"bind": "127.0.0.1:0", "trusted_proxies": ["127.0.0.0/8"]},
        "state": {"directory": str(state)},
        "auth": {"password_hash": hash_password(PASSWORD)},
        "browser": {
            "no_sandbox": no_sandbox,
            "contexts": WARM,
            "recycle_after": NEVER_BY_AGE,
            "recycle_memory": NEVER_BY_SIZE,
        },
        "marketplace": {
            "portal_url": portal.portal,
            "shop_url": portal.shop,
            "short_urls": [portal.short],
        },
        "links": {"remember_max": REMEMBERED},
        "products": {"remember_max": REMEMBERED},
        "journal": {"retention_count": REMEMBERED},
        "webhooks": {"allow": ["127.0.0.0/8"], "secret": "what-webhook-calls-are-signed-with"},
        "crews": [
            {
                "name": CREW,
                "runner": "command",
                "command": ["/bin/sh", "-c", WORKER],
                "tools": ["convert_links"],
                "deadline": 120,
            }
        ],
    }
