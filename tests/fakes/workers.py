"""A fake machine for crew workers: reapers and the worker processes below them.

It replaces `ForkServer.fork_reaper`; all code above is the daemon's. A reaper gets the encoded spec
and duplicates of the real descriptors (status, control, connection, output), so the kernel's rules
hold for them. No data is under way when all tasks wait, so a mock clock can be used.

`puppets.py` has the workers.
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
from tests.fakes.puppets import FakeWorker, Step

START_TAKES = 0.01
"""Seconds from the reaper's start to its command's start."""
END_TAKES = 0.005
"""Seconds until a process tree and its folder are gone."""
MEASURE_INTERVAL = 0.05
"""Seconds between two measurements of the memory."""
INVALID_PID = 2**22 + 1
"""An invalid process id: the daemon sends real signals to the id that it is given."""
EXCESS = 2**20
"""Bytes beyond its limit that a worker uses at the step `fill`."""


class Workers:
    """All fake processes, and the faults of the next ones.

    The processes' tasks run in `nursery`, which outlives the daemon.
    """

    def __init__(self, folder: Path) -> None:
        self.program = folder / "worker"
        self.program.write_text("#!/bin/sh\n")
        self.program.chmod(0o755)
        self.nursery: trio.Nursery | None = None
        self.reapers: list[Reaper] = []
        # Faults
        self.starting: Gate | None = None  # a new reaper waits here
        self.start_error: OSError | None = None  # starting a reaper fails
        self.folder_error: OSError | None = None  # creating a worker's folder fails
        self.scripts: dict[Path, Sequence[Step]] = {}  # scripts of programs, instead of the input's
        self._pids = itertools.count(50_000)

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Run every worker that is started from now on here."""

        @asynccontextmanager
        async def fork_server() -> AsyncIterator[SimpleNamespace]:
            yield SimpleNamespace(fork_reaper=self.fork_reaper, limits=Limits())

        patch.setattr(process_tree_module, "fork_server", fork_server)
        patch.setattr(worker_module, "tempfile", SimpleNamespace(mkdtemp=self._folder))

    @property
    def running(self) -> list[FakeWorker]:
        """The running workers, in the order of their start."""
        return [each.worker for each in self.reapers if each.worker is not None]

    @property
    def worker(self) -> FakeWorker:
        return self.running[-1]

    def worker_of(self, kickoff_id: str) -> FakeWorker:
        """Return the worker of this execution. Raises LookupError if there is none."""
        found = [each for each in self.running if each.execution == kickoff_id]
        if not found:
            raise LookupError(f"no worker runs {kickoff_id}")
        return found[-1]

    def reaper_of(self, worker: FakeWorker) -> Reaper:
        return next(each for each in self.reapers if each.worker is worker)

    def count(self) -> int:
        """Return the number of processes: reapers, workers and workers' children."""
        workers = self.running
        return len(self.reapers) + len(workers) + sum(len(each.forks) for each in workers)

    def heal(self) -> None:
        """Remove the faults of later starts and open the `starting` gate."""
        if self.starting is not None:
            self.starting.open()
        self.starting = self.start_error = self.folder_error = None
        self.scripts.clear()
        self.program.touch()
        self.program.chmod(0o755)

    def _folder(self, *, prefix: str, dir: Path) -> str:
        if self.folder_error is not None:
            raise self.folder_error
        return tempfile.mkdtemp(prefix=prefix, dir=dir)

    # The interface of `ForkServer`

    def fork_reaper(self, spec: CommandSpec, *descriptors: int) -> Callable[[], None]:
        """Start a reaper. Return a function that kills it."""
        if self.start_error is not None:
            raise self.start_error
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
    """A fake of `smartlinkd/processes/reaper.py`."""

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
        self.worker: FakeWorker | None = None
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
        """Kill the reaper with SIGKILL; as the fork server does, end its tree."""
        if not self._has_ended:
            self._life.cancel()
            self._end_tree()
            self._end()

    # Process

    async def run(self) -> None:
        with self._life:
            if self._machine.starting is not None:
                await self._machine.starting.enter()
            self._report(f"reaper {INVALID_PID}")
            await trio.sleep(START_TAKES)
            fault = self._why_not()
            if fault:
                self._report(f"failed {fault} exec")
            else:
                await self._follow()
            await trio.sleep(END_TAKES)
            if not self._has_ended:  # `kill()` may have come during the sleep
                self._end_tree()
                self._report("gone")
                shutil.rmtree(self._folder)
                self._report("removed")
                self._end()

    def _why_not(self) -> int:
        """Return the errno with which exec fails; 0 if it succeeds."""
        try:
            if not os.stat(self.command[0]).st_mode & 0o111:  # noqa: PTH116 - a str
                return 13
        except OSError as fault:
            return fault.errno or 5
        return 0

    async def _follow(self) -> None:
        worker = self.worker = FakeWorker(
            self._machine.next_pid(), self.execution, self._descriptors
        )
        if (script := self._machine.scripts.get(Path(self.command[0]))) is not None:
            worker.run_instead(*script)
        self._descriptors = []  # the worker owns them
        self._report(f"started {worker.pid}")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            nursery.start_soon(self._wait, worker, nursery.cancel_scope)
            nursery.start_soon(self._pass_on, worker, nursery.cancel_scope)
            nursery.start_soon(self._measure, worker, nursery.cancel_scope)

    async def _wait(self, worker: FakeWorker, done: trio.CancelScope) -> None:
        await worker.ended.wait()
        self._report(f"ended {worker.waitstatus}")
        done.cancel()

    async def _pass_on(self, worker: FakeWorker, done: trio.CancelScope) -> None:
        """Send signals to the command's group until the control pipe is closed."""
        while True:
            await trio.lowlevel.wait_readable(self._control)
            if self._has_ended:  # `_end()` has closed the descriptor
                break
            numbers = os.read(self._control, 64)
            if not numbers:
                break
            for number in numbers:
                worker.signal(number)
                if number == signal.SIGKILL:
                    self._kill([each for each in worker.forks if not each.stray])
        done.cancel()

    async def _measure(self, worker: FakeWorker, done: trio.CancelScope) -> None:
        while worker.step != "fill":
            await worker.changed.wait()
        await trio.sleep(MEASURE_INTERVAL)
        self._report(f"excess {self._memory + EXCESS}")
        done.cancel()

    def _end_tree(self) -> None:
        if self.worker is not None:
            self.worker.signal(signal.SIGKILL)
            self._kill(list(self.worker.forks))

    def _kill(self, forks: Sequence[object]) -> None:
        assert self.worker is not None
        for each in [each for each in self.worker.forks if each in forks]:
            each.kill()
            self.worker.forks.remove(each)

    def _report(self, line: str) -> None:
        try:
            os.write(self._status, f"{line}\n".encode())
        except BrokenPipeError:
            return  # the daemon has ended

    def _end(self) -> None:
        """Close all descriptors, as the kernel does; readers see end of file."""
        self._has_ended = True
        for each in (*self._descriptors, self._control, self._status):
            os.close(each)
        self._descriptors = []
        self._machine.reapers.remove(self)
        self.worker = None
