"""Playwright beside the daemon: a process that runs the scripts of `bench/peers` on request.

Chromium is the same program on both sides, and equally sandboxed. As root, the daemon starts
Chromium as `nobody`, whose sandbox works, while Playwright would start it as root, without one. So
Playwright's executable is a shell script that switches to `nobody`. If the sandbox does not work on
the machine, both sides run without it.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from bench.daemons import chromium, unsandboxed
from smartlinkd.sandbox.batch import Origins
from smartlinkd.sandbox.session import cookies_of
from tests.programs import ROOT, NotStarted

ACCOUNT: Final = "100200301"
"""The scripts' account: not the daemon's, so that the portal can tell their submits apart."""

MODULE: Final = "bench.peers.playwright_main"
STOP: Final = 20.0

AS_NOBODY: Final = """\
#!/bin/sh
for word; do
    case $word in
    --user-data-dir=*) HOME=${{word#*=}} ;;
    esac
done
export HOME
chown nobody "$HOME"
exec setpriv --reuid=nobody --regid=nogroup --clear-groups {chromium} "$@"
"""

Script = Literal["kept", "each", "bare"]
Order = tuple[Sequence[str], Sequence[str]]
"""Links and sub-ids."""


@dataclass(frozen=True)
class Done:
    """Seconds of each finished order, and from the start until the last one was finished."""

    orders: Sequence[float]
    seconds: float


class ScriptProcess:
    """The process with the Playwright scripts. `method` is like the daemon's setting."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log
        self.version = str(self._answer()["version"])

    @property
    def pid(self) -> int:
        return self._process.pid

    def convert(
        self,
        script: Script,
        method: str,
        clients: Sequence[Sequence[Order]],
        seconds: float | None = None,
    ) -> Done:
        """Convert each client's orders in turn, all clients at once, for at most `seconds`."""
        assert self._process.stdin is not None
        asked = {"script": script, "method": method, "clients": clients, "seconds": seconds}
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        told = self._answer()
        return Done(told["orders"], told["seconds"])

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise NotStarted(self._log.read_text(encoding="utf-8")[-2000:])
        told: dict[str, Any] = json.loads(line)
        return told


@contextmanager
def script_process(
    folder: Path, portal: Origins, *, port: int | None = None
) -> Iterator[ScriptProcess]:
    """Start the process and its browser, in a folder that is created.

    `port` is where the DevTools of the script `bare`'s Chromium listen.
    """
    folder.mkdir()
    settings = {
        "executable": str(_write_wrapper(folder) if os.geteuid() == 0 else chromium()),
        "sandbox": not unsandboxed(),
        "port": port,
        "portal": portal.portal,
        "cookies": cookies_of(ACCOUNT),
    }
    log = folder / "log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", MODULE, json.dumps(settings)],
            cwd=ROOT,
            env={"PATH": os.environ["PATH"], "HOME": str(folder), "TMPDIR": str(folder)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            process_group=0,
        )
    try:
        yield ScriptProcess(process, log)
    finally:
        _stop(process)


def _write_wrapper(folder: Path) -> Path:
    program = folder / "chromium"
    program.write_text(AS_NOBODY.format(chromium=shlex.quote(str(chromium()))), encoding="utf-8")
    program.chmod(0o755)
    return program


def _stop(process: subprocess.Popen[str]) -> None:
    """End the process, and Chromium with it, by closing its standard input."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    try:
        process.wait(STOP)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()
