"""The machine that crews' workers run on, played: reapers and the processes under them.

The seam is as low as it can be without a process: `ForkServer.fork_reaper`, by which a reaper
begins. What it is given, it is really given: its spec as it is encoded, and the status pipe, the
control pipe, the connection to the worker and the ends of standard output and error, which are the
daemon's own descriptors, duplicated as on the way to another process; the kernel's rules hold for
them. So above it all is the daemon's own, `processes/process_tree.py` included. Nothing is ever
on its way in the kernel when all tasks wait, so a mock clock can be used.

What a reaper does with its tree is played here, and what a worker does in `puppets.py`.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio

from smartlinkd.crews import worker as worker_module
from smartlinkd.processes import process_tree as process_tree_module
from smartlinkd.processes.process_tree import Limits
from smartlinkd.processes.reaper import CommandSpec
from tests.fakes.gate import Gate
from tests.fakes.puppets import Puppet, Step

STARTS = 0.01
"""Seconds from the reaper's start to that of its command."""
ENDS = 0.005
"""Seconds for a tree to be gone, and its folder."""
LOOKS = 0.05
"""Seconds between two looks at the memory."""
NOBODY = 2**22 + 1
"""A process id that the kernel gives to nobody: it would be killed in earnest."""
OVER = 2**20
"""Bytes that a worker uses beyond its limit, when it does."""


class Workers:
    """What runs on it, and what goes wrong with it next.

    `nursery` is where processes live; it outlives the daemon, as they might.
    """

    def __init__(self, folder: Path) -> None:
        self.program = folder / "worker"
        self.program.write_text("#!/bin/sh\n")
        self.program.chmod(0o755)
        self.nursery: trio.Nursery | None = None
        self.reapers: list[Reaper] = []
        # What goes wrong
        self.starting: Gate | None = None  # no reaper begins before this
        self.no_process: OSError | None = None  # none can be started
        self.no_folder: OSError | None = None  # none gets a folder of its own
        self.scripts: dict[Path, Sequence[Step]] = {}  # what a program does, whatever it is told
        self._pids = itertools.count(50_000)

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Have every worker that is started from now on run here."""

        @asynccontextmanager
        async def fork_server() -> AsyncIterator[SimpleNamespace]:
            yield SimpleNamespace(fork_reaper=self.fork_reaper, limits=Limits())

        patch.setattr(process_tree_module, "fork_server", fork_server)
        patch.setattr(worker_module, "tempfile", SimpleNamespace(mkdtemp=self._folder))

    @property
    def running(self) -> list[Puppet]:
        """Those that live, in the order of their start."""
        return [each.puppet for each in self.reapers if each.puppet is not None]

    @property
    def puppet(self) -> Puppet:
        return self.running[-1]

    def of(self, kickoff_id: str) -> Puppet:
        """The one that works on an execution. Raises LookupError."""
        found = [each for each in self.running if each.execution == kickoff_id]
        if not found:
            raise LookupError(f"nobody works on {kickoff_id}")
        return found[-1]

    def reaper_of(self, puppet: Puppet) -> Reaper:
        return next(each for each in self.reapers if each.puppet is puppet)

    def count(self) -> int:
        """Processes, of all kinds: reapers, workers, and what workers have left."""
        workers = self.running
        return len(self.reapers) + len(workers) + sum(len(each.forks) for each in workers)

    def heal(self) -> None:
        """Nothing goes wrong with what is started from now on."""
        if self.starting is not None:
            self.starting.open()
        self.starting = self.no_process = self.no_folder = None
        self.scripts.clear()
        self.program.touch()
        self.program.chmod(0o755)

    def _folder(self, *, prefix: str, dir: Path) -> str:
        if self.no_folder is not None:
            raise self.no_folder
        return tempfile.mkdtemp(prefix=prefix, dir=dir)

    # As `ForkServer` has it

    def fork_reaper(self, spec: CommandSpec, *descriptors: int) -> Callable[[], None]:
        """A reaper begins. Return a function that kills it."""
        if self.no_process is not None:
            raise self.no_process
        assert self.nursery is not None
        status, control, _, stdout, stderr, channel = descriptors
        reaper = Reaper(
            self,
            CommandSpec.decode(spec.encode()),
            descriptors=[os.dup(each) for each in (channel, stdout, stderr)],
            control=os.dup(control),
            status=os.dup(status),
        )
        self.reapers.append(reaper)
        self.nursery.start_soon(reaper.run)
        return reaper.kill

    def next_pid(self) -> int:
        return next(self._pids)


class Reaper:
    """See `smartlinkd/processes/reaper.py`."""

    def __init__(
        self,
        machine: Workers,
        spec: CommandSpec,
        *,
        descriptors: Sequence[int],
        control: int,
        status: int,
    ) -> None:
        assert spec.memory is not None
        assert spec.remove is not None
        self.puppet: Puppet | None = None
        self.command = [os.fsdecode(word) for word in spec.command]
        self.execution = spec.environment[b"SMARTLINKD_EXECUTION"].decode()
        self._machine = machine
        self._memory = spec.memory
        self._folder = Path(os.fsdecode(spec.remove))
        self._descriptors = list(descriptors)
        self._control = control
        self._status = status
        self._has_ended = False
        self._life = trio.CancelScope()
        os.set_blocking(control, False)

    def kill(self) -> None:
        """SIGKILL, from whomever. The fork server ends its tree."""
        if not self._has_ended:
            self._life.cancel()
            self._end_tree()
            self._end()

    # Its life

    async def run(self) -> None:
        with self._life:
            if self._machine.starting is not None:
                await self._machine.starting.enter()
            self._report(f"reaper {NOBODY}")
            await trio.sleep(STARTS)
            fault = self._why_not()
            if fault:
                self._report(f"failed {fault} exec")
            else:
                await self._follow()
            await trio.sleep(ENDS)
            if not self._has_ended:  # it may have been killed in this very moment
                self._end_tree()
                self._report("gone")
                shutil.rmtree(self._folder)
                self._report("removed")
                self._end()

    def _why_not(self) -> int:
        """The number of the error of exec; 0 for none."""
        try:
            if not os.stat(self.command[0]).st_mode & 0o111:  # noqa: PTH116 - of a word
                return 13
        except OSError as fault:
            return fault.errno or 5
        return 0

    async def _follow(self) -> None:
        puppet = self.puppet = Puppet(
            self._machine.next_pid(), self.execution, self._folder, self._descriptors
        )
        if (script := self._machine.scripts.get(Path(self.command[0]))) is not None:
            puppet.do(*script)
        self._descriptors = []  # they are its own now
        self._report(f"started {puppet.pid}")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(puppet.run)
            nursery.start_soon(self._wait, puppet, nursery.cancel_scope)
            nursery.start_soon(self._pass_on, puppet, nursery.cancel_scope)
            nursery.start_soon(self._measure, puppet, nursery.cancel_scope)

    async def _wait(self, puppet: Puppet, done: trio.CancelScope) -> None:
        await puppet.ended.wait()
        self._report(f"ended {puppet.waitstatus}")
        done.cancel()

    async def _pass_on(self, puppet: Puppet, done: trio.CancelScope) -> None:
        """Signals to the command's group, until the control pipe is closed."""
        while True:
            await trio.lowlevel.wait_readable(self._control)
            if self._has_ended:  # as above: the number may be another file's by now
                break
            numbers = os.read(self._control, 64)
            if not numbers:
                break
            for number in numbers:
                puppet.signal(number)
                if number == signal.SIGKILL:
                    self._kill([each for each in puppet.forks if not each.stray])
        done.cancel()

    async def _measure(self, puppet: Puppet, done: trio.CancelScope) -> None:
        while puppet.step != "fill":
            await puppet.news.wait()
        await trio.sleep(LOOKS)
        self._report(f"excess {self._memory + OVER}")
        done.cancel()

    def _end_tree(self) -> None:
        if self.puppet is not None:
            self.puppet.signal(signal.SIGKILL)
            self._kill(list(self.puppet.forks))

    def _kill(self, forks: Sequence[object]) -> None:
        assert self.puppet is not None
        for each in [each for each in self.puppet.forks if each in forks]:
            each.kill()
            self.puppet.forks.remove(each)

    def _report(self, line: str) -> None:
        try:
            os.write(self._status, f"{line}\n".encode())
        except BrokenPipeError:
            return  # the daemon has gone

    def _end(self) -> None:
        """The kernel closes what it had open, and whoever has the other ends sees it."""
        self._has_ended = True
        for each in (*self._descriptors, self._control, self._status):
            os.close(each)
        self._descriptors = []
        self._machine.reapers.remove(self)
        self.puppet = None
