"""Programs for tests, soaks and benchmarks: any module of ours, and the sandbox portal.

Each is a process with its own folder, so that what one leaves or needs can be told from the others.
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
from pathlib import Path
from types import MappingProxyType
from typing import Final

from smartlinkd.commands.demo import is_sandbox_unusable
from smartlinkd.sandbox.batch import Origins

ROOT: Final = Path(__file__).parents[1]
PASSWORD: Final = "correct horse battery staple"
"""The password of each daemon's owner."""

START: Final = 60.0
STOP: Final = 60.0
LOOK_EVERY: Final = 0.02


class NotStarted(Exception):  # noqa: N818 - it names what happened
    """A program did not start. The text has its last output."""


class Program:
    """A Python module as a process. Its output is in `log` and `output`.

    The process does not get a terminal's signals; its parent ends it (`ending_signals`). Its
    environment has the path, a folder for temporary files, and `extra_environment`.
    """

    def __init__(
        self,
        module: str,
        *words: str,
        folder: Path,
        log: Path,
        extra_environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.log, self.output = log, folder / "output"
        with self.log.open("wb") as errors, self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, *words],
                cwd=ROOT,
                env={"PATH": os.environ["PATH"], "TMPDIR": str(folder), **extra_environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                process_group=0,
            )

    def wait_for(self, pattern: str, file: Path) -> re.Match[str]:
        """Wait until the process has written `pattern` to `file`. Raises `NotStarted`."""
        deadline = time.monotonic() + START
        while time.monotonic() < deadline and self.process.poll() is None:
            if found := re.search(pattern, file.read_text(encoding="utf-8")):
                return found
            time.sleep(LOOK_EVERY)
        raise NotStarted(self.log.read_text(encoding="utf-8")[-2000:])

    def stop(self) -> int:
        """End the process with SIGTERM, like a service manager, and return its exit code."""
        self.process.terminate()
        try:
            return self.process.wait(STOP)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


def ending_signals() -> list[signal.Signals]:
    """Return the signals that end a run: Ctrl-C, a kill, a closed terminal.

    Ignored signals stay ignored: nohup(1) ignores SIGHUP, a shell without job control SIGINT.
    """
    each = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    return [one for one in each if signal.getsignal(one) is not signal.SIG_IGN]


@contextmanager
def sandbox(folder: Path) -> Iterator[Origins]:
    """Run a sandbox; yield the addresses of its three listeners."""
    folder.mkdir()
    program = Program("smartlinkd", "sandbox", "--port", "0", folder=folder, log=folder / "log")
    try:
        pattern = r"portal +(http://\S+)/ .*\n +shop +(http://\S+)/\n +short links +(http://\S+)/\n"
        yield Origins(*program.wait_for(pattern, program.output).groups())
    finally:
        program.stop()


async def must_disable_sandbox() -> bool:
    """True if Chromium starts on this machine only without its sandbox.

    A soak and a benchmark may run without it, because they open only their own portal's pages.
    Raises `LaunchFailed` if Chromium does not start at all.
    """
    return await is_sandbox_unusable(lambda _: None)
