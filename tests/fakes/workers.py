"""The machine that crews' workers run on, played: guardians and the processes under them.

The seam is as low as it can be without a process: `Guardians.start`, by which a guardian begins.
What a guardian is given, it is really given: its order as it is written, and the status pipe, the
lifeline, the connection to the worker and the ends of standard output and error, which are the
daemon's own descriptors, duplicated as on the way to another process; the kernel's rules hold for
them. So above it all is the daemon's own, `processes/guarded.py` included. Nothing is ever
on its way in the kernel when all tasks wait, so a mock clock can be used.

What a guardian does with its tree is played here, and what a worker does in `puppets.py`.
"""

from __future__ import annotations

import itertools
import logging
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio

from smartlinkd.crews import worker as worker_module
from smartlinkd.nurseries import background
from smartlinkd.processes import guarded as guarded_module
from smartlinkd.processes.guardian import Order
from smartlinkd.processes.tail import Tails
from tests.fakes.gate import Gate
from tests.fakes.puppets import Puppet, Step

logger = logging.getLogger(__name__)

STARTS = 0.01
"""Seconds from the guardian's start to that of its command."""
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
        self.guardians: list[Guardian] = []
        self.starts = 0
        # What goes wrong
        self.starting: Gate | None = None  # no guardian begins before this
        self.no_process: OSError | None = None  # none can be started
        self.no_folder: OSError | None = None  # none gets a folder of its own
        self.scripts: dict[Path, Sequence[Step]] = {}  # what a program does, whatever it is told
        self._pids = itertools.count(50_000)

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Have every worker that is started from now on run here."""

        @asynccontextmanager
        async def guardians() -> AsyncIterator[SimpleNamespace]:
            tails = Tails()
            try:
                async with background(tails.follow):
                    yield SimpleNamespace(start=self.start, take_back=self.take_back, tails=tails)
            finally:
                tails.close()

        patch.setattr(guarded_module, "guardians", guardians)
        patch.setattr(worker_module, "tempfile", SimpleNamespace(mkdtemp=self._folder))

    @property
    def running(self) -> list[Puppet]:
        """Those that live, in the order of their start."""
        return [each.puppet for each in self.guardians if each.puppet is not None]

    @property
    def puppet(self) -> Puppet:
        """The newest."""
        return self.running[-1]

    def of(self, kickoff_id: str) -> Puppet:
        """The one that works on an execution. Raises LookupError."""
        found = [each for each in self.running if each.execution == kickoff_id]
        if not found:
            raise LookupError(f"nobody works on {kickoff_id}")
        return found[-1]

    def guardian_of(self, puppet: Puppet) -> Guardian:
        return next(each for each in self.guardians if each.puppet is puppet)

    def count(self) -> int:
        """Processes, of all kinds: guardians, workers, and what workers have left."""
        workers = self.running
        return len(self.guardians) + len(workers) + sum(len(each.forks) for each in workers)

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

    # As `Guardians` has it

    def start(self, order: Order, *descriptors: int) -> Guardian:
        """A guardian begins."""
        if self.no_process is not None:
            raise self.no_process
        assert self.nursery is not None
        self.starts += 1
        status, lifeline, _, stdout, stderr, channel = descriptors
        guardian = Guardian(
            self,
            Order.read(order.written()),
            descriptors=[os.dup(each) for each in (channel, stdout, stderr)],
            lifeline=os.dup(lifeline),
            status=os.dup(status),
        )
        self.guardians.append(guardian)
        self.nursery.start_soon(guardian.run)
        return guardian

    def take_back(self, guardian: Guardian) -> None:
        """It has ended: here each does one order, which is for its asker the same."""
        assert guardian not in self.guardians

    def next_pid(self) -> int:
        return next(self._pids)


class Guardian:
    """See `smartlinkd/processes/guardian.py`."""

    def __init__(
        self,
        machine: Workers,
        order: Order,
        *,
        descriptors: Sequence[int],
        lifeline: int,
        status: int,
    ) -> None:
        assert order.limits is not None
        assert order.remove is not None
        self.puppet: Puppet | None = None
        self.pid = 0  # set by whoever reads it, as the real one's
        self.command = [os.fsdecode(word) for word in order.command]
        self.execution = order.environment[b"SMARTLINKD_EXECUTION"].decode()
        self._machine = machine
        self._memory = order.limits[0]
        self._folder = Path(os.fsdecode(order.remove))
        self._descriptors = list(descriptors)
        self._lifeline = lifeline
        self._status = status
        self._has_ended = False
        self._life = trio.CancelScope()
        os.set_blocking(lifeline, False)

    def give_up(self, name: str) -> None:
        """It does not answer."""
        logger.error("%s: the server of guardians does not answer and is killed", name)
        self.kill()

    def dismiss(self) -> None:
        """It is done, or will be."""

    def kill(self) -> None:
        """SIGKILL, from whomever. The server of guardians ends its tree."""
        if not self._has_ended:
            self._life.cancel()
            self._end_tree()
            self._end()

    # Its life

    async def run(self) -> None:
        with self._life:
            if self._machine.starting is not None:
                await self._machine.starting.enter()
            self._report(f"guardian {NOBODY}")
            await trio.sleep(STARTS)
            fault = self._why_not()
            if fault:
                self._report(f"failed {fault} exec")
            else:
                await self._follow()
            await trio.sleep(ENDS)
            if not self._has_ended:  # it may have been killed in this very moment
                self._end_tree()
                shutil.rmtree(self._folder)
                self._report("gone")
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
        """Signals to the command's group, until the lifeline is closed."""
        while True:
            await trio.lowlevel.wait_readable(self._lifeline)
            if self._has_ended:  # as above: the number may be another file's by now
                break
            numbers = os.read(self._lifeline, 64)
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
        for each in (*self._descriptors, self._lifeline, self._status):
            os.close(each)
        self._descriptors = []
        self._machine.guardians.remove(self)
        self.puppet = None
