"""Programs that run beside a test, a soak or a benchmark: any module of ours, the sandbox portal.

Each is a process of its own with a folder of its own, so that what one leaves behind can be told
from what others do, and what one needs is not measured with the other.
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
"""Of the owner of each daemon among them."""

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
    program = Program("smartlinkd", "sandbox", "--port", "0", folder=folder, log=folder / "log")
    try:
        pattern = r"portal +(http://\S+)/ .*\n +shop +(http://\S+)/\n +short links +(http://\S+)/\n"
        yield Origins(*program.wait_for(pattern, program.output).groups())
    finally:
        program.stop()


async def needs_no_sandbox() -> bool:
    """Whether Chromium starts here only without its sandbox.

    A soak and a benchmark may go on without: they open no page but their own portal's. Raises
    `LaunchFailed` when it starts in no way.
    """
    return await is_sandbox_unusable(lambda _: None)
