"""Programs for tests, soaks and benchmarks: any Python module, and the sandbox with its accounts.

Each is a process with its own folder, so that what one leaves or needs can be told from the others.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from smartlinkd.commands.demo import is_sandbox_unusable
from smartlinkd.sandbox.batch import Origins
from smartlinkd.sandbox.session import cookies_of

ROOT: Final = Path(__file__).parents[1]
PASSWORD: Final = "correct horse battery staple"
"""The password of each daemon's owner."""

START: Final = 60.0
STOP: Final = 60.0
LOOK_EVERY: Final = 0.02


class NotStarted(Exception):  # noqa: N818 - it names what happened
    """A program did not start. The text has its last output."""


@dataclass
class Account:
    """An account of the marketplace. `renew()` gives it a new session, as a login of its owner
    does."""

    number: str
    session: int = 0

    @property
    def cookie(self) -> str:
        cookies = cookies_of(self.number)
        cookies["SPC_F"] += f"{self.session:x}"
        return "; ".join(f"{name}={value}" for name, value in cookies.items())

    @property
    def secrets(self) -> set[str]:
        """The values that nobody may reveal: all but SPC_U, which is the account's name."""
        pairs = (pair.split("=", 1) for pair in self.cookie.split("; "))
        return {value for name, value in pairs if name != "SPC_U"}

    def renew(self) -> None:
        self.session += 1


class Program:
    """A Python module as a process. Its output is appended to `log` and `output`.

    The process does not get a terminal's signals; its parent ends it (`ending_signals`). Its
    environment has the path, a folder for temporary files, and `extra_environment`.
    """

    python: Sequence[str] = (sys.executable,)
    """The interpreter with its options."""
    process_group: int | None = 0
    """0 for a group of its own, None for that of its parent."""

    def __init__(
        self,
        module: str,
        *words: str,
        folder: Path,
        log: Path,
        extra_environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.log, self.output = log, folder / "output"
        with self.log.open("ab") as errors, self.output.open("ab") as output:
            self._begins = {self.log: errors.tell(), self.output: output.tell()}
            self.process = subprocess.Popen(
                [*self.python, "-m", module, *words],
                cwd=ROOT,
                env={"PATH": os.environ["PATH"], "TMPDIR": str(folder), **extra_environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                process_group=self.process_group,
            )

    def wait_for(self, pattern: str, file: Path) -> re.Match[str]:
        """Wait until the process has written `pattern` to `file`. Raises `NotStarted`."""
        deadline = time.monotonic() + START
        while time.monotonic() < deadline and self.process.poll() is None:
            text = file.read_bytes()[self._begins[file] :].decode(errors="replace")
            if found := re.search(pattern, text):
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


SANDBOX_ADDRESSES: Final = (
    r"portal +(http://\S+)/ .*\n +shop +(http://\S+)/\n +short links +(http://\S+)/\n"
)
"""The addresses of its three listeners, as the sandbox prints them."""


@contextmanager
def sandbox(folder: Path) -> Iterator[Origins]:
    """Run a sandbox; yield the addresses of its three listeners."""
    folder.mkdir()
    program = Program("smartlinkd", "sandbox", "--port", "0", folder=folder, log=folder / "log")
    try:
        yield Origins(*program.wait_for(SANDBOX_ADDRESSES, program.output).groups())
    finally:
        program.stop()


async def must_disable_sandbox() -> bool:
    """True if Chromium starts on this machine only without its sandbox.

    A soak and a benchmark may run without it, because they open only their own portal's pages.
    Raises `LaunchFailed` if Chromium does not start at all.
    """
    return await is_sandbox_unusable(lambda _: None)
