"""A fake machine for Chromium: its processes, profile folders and connections.

`Machine.install` replaces the functions that start and inspect a process, make a folder and
connect. All code above them is the daemon's. There is no process, socket or thread, so a mock clock
can be used.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from smartlinkd.browser import chromium as chromium_module
from smartlinkd.browser import instance
from smartlinkd.browser.cdp import CdpConnection, connect_over
from smartlinkd.browser.chromium import Chromium
from smartlinkd.browser.errors import Disconnected
from smartlinkd.nurseries import background
from smartlinkd.processes.process_tree import ExitStatus
from tests.fakes.chromium import FakeChromium
from tests.fakes.gate import Gate
from tests.fakes.network import Network
from tests.fakes.wire import Wire

LAUNCH_TAKES = 0.1  # seconds


class Process:
    """A fake main process, with the interface of `processes.process_tree.ProcessTree`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.status: ExitStatus | None = None
        self.stdout_tail = ""
        self.stderr_tail = ""
        self.wires: list[Wire] = []
        self.browser: FakeChromium
        self._life = trio.CancelScope()
        self._ended = trio.Event()

    async def wait(self) -> ExitStatus:
        await self._ended.wait()
        assert self.status is not None
        return self.status

    def terminate(self) -> None:
        self.end(ExitStatus(signal=signal.SIGTERM))

    def kill(self) -> None:
        self.end(ExitStatus(signal=signal.SIGKILL))

    def end(self, status: ExitStatus, said: str = "") -> None:
        """End the process with this status and standard error; its sockets close."""
        if self.status is None:
            self.status, self.stderr_tail = status, said
            self._life.cancel()
            self._ended.set()

    async def run(self, machine: Machine) -> None:
        """Run the process. Its DevTools port opens after LAUNCH_TAKES seconds and `launching`."""
        try:
            with self._life:
                async with trio.open_nursery() as nursery:
                    self.browser = FakeChromium(self.pid, machine.network, nursery)
                    await trio.sleep(LAUNCH_TAKES)
                    if machine.launching is not None:
                        await machine.launching.enter()
                    machine.prepare(self.browser)
                    self.stderr_tail = (
                        f"DevTools listening on ws://127.0.0.1:{self.port}{self.path}\n"
                    )
                    if machine.early_exit_stderr is not None:
                        self.end(ExitStatus(code=1), machine.early_exit_stderr)
                    await trio.sleep_forever()
        finally:
            for wire in self.wires:
                await wire.there.aclose()

    @property
    def port(self) -> int:
        return 10_000 + self.pid % 50_000

    @property
    def path(self) -> str:
        return f"/devtools/browser/{self.pid:036x}"


class Machine:
    """The fake browser processes, and the faults of the next ones."""

    def __init__(self, folder: Path, network: Network) -> None:
        self.network = network
        self.profiles = folder / "profiles"
        self.profiles.mkdir()
        self.executable = folder / "chromium"
        self.executable.write_text("#!/bin/sh\n")
        self.executable.chmod(0o755)
        self.running: list[Process] = []
        self.launches = 0
        # Faults
        self.launching: Gate | None = None  # a launch waits here
        self.start_error: OSError | None = None  # starting a process fails
        self.folder_error: OSError | None = None  # creating a profile folder fails
        self.early_exit_stderr: str | None = None  # if set, a browser exits at once with it
        self.prepare: Callable[[FakeChromium], object] = lambda _: None  # called with each browser
        self._pids = itertools.count(40_000)
        self.memory = 100 << 20

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Run every browser that is launched from now on here."""
        patch.setattr(chromium_module, "run_process_tree", self._run_process_tree)
        patch.setattr(chromium_module, "make_profile_folder", self.make_profile_folder)
        patch.setattr(chromium_module, "is_confined", lambda *_: True)
        patch.setattr(Chromium, "memory", self._memory_of)
        patch.setattr(instance, "connect", self.connect)

    @property
    def process(self) -> Process:
        return self.running[-1]

    @property
    def browser(self) -> FakeChromium:
        return self.process.browser

    def heal(self) -> None:
        """Remove the faults of later launches and open the `launching` gate."""
        if self.launching is not None:
            self.launching.open()
        self.launching = self.start_error = self.folder_error = None
        self.early_exit_stderr = None
        self.prepare = lambda _: None
        self.executable.touch()
        self.executable.chmod(0o755)

    def make_profile_folder(self, parent: Path, _: object) -> Path:
        if self.folder_error is not None:
            raise self.folder_error
        folder = parent / f"smartlinkd-chromium-{self.launches}"
        folder.mkdir()
        return folder

    async def _memory_of(self, *_: object) -> int:
        await trio.lowlevel.checkpoint()
        return self.memory

    @asynccontextmanager
    async def _run_process_tree(
        self, command: Sequence[str], *, remove: Path, **_: Any
    ) -> AsyncIterator[Process]:
        try:
            await trio.lowlevel.checkpoint()
            if self.start_error is not None:
                raise self.start_error
            if not os.access(command[0], os.X_OK):
                raise FileNotFoundError(2, os.strerror(2), command[0])
            self.launches += 1
            process = Process(next(self._pids))
            self.running.append(process)
            try:
                async with background(lambda: process.run(self)):
                    try:
                        yield process
                    finally:
                        process.kill()
            finally:
                self.running.remove(process)
        finally:
            shutil.rmtree(remove)

    @asynccontextmanager
    async def connect(self, endpoint: str) -> AsyncIterator[CdpConnection]:
        await trio.lowlevel.checkpoint()
        found = [one for one in self.running if endpoint.endswith(one.path) and not one.status]
        if not found:
            fault = ConnectionRefusedError(111, os.strerror(111))
            raise Disconnected(f"the browser cannot be reached: {fault!r}")
        process, wire = found[0], Wire()
        process.wires.append(wire)
        process.browser.nursery.start_soon(process.browser.accept, wire.there)
        async with connect_over(wire, "127.0.0.1", process.path) as connection:
            yield connection
