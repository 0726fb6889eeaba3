"""Run one worker of a crew for the length of a block.

    async with start_worker(settings, execution_id, inputs, runs=folder) as worker:
        async for message in worker.messages:
            ...
        end = await worker.end()

The problem: a worker is any program, and may fork, hang, ignore signals, fill memory and disk, or
break the protocol. Its user wants three things: the messages, one true reason for its end, and that
nothing of it is left afterwards, however the block is left.

The choice: a guarded process tree (see `processes/guarded.py`) that leads its own session
and process group, in a private folder that is its home, its working folder and its place for
temporary files, and goes with it. Its environment is of our own making, so none of the daemon's
secrets are in it; the configured values, which may be secrets, are hidden where its words are
quoted. The protocol is spoken on descriptor 3 (see `smartlinkd/crews/channel.py`), so what the
program and its libraries print cannot be mistaken for it.

Limits are the whole tree's memory (the guardian measures it and says why resource limits cannot),
the size of a file, no core files, and what it may say. There is none for CPU time, since the
deadline bounds an execution, and none for the number of processes: RLIMIT_NPROC counts everything
that our user runs, us and the browser included, so the service manager's TasksMax is the place.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from pathlib import Path

import trio

from smartlinkd.crews.channel import Channel
from smartlinkd.crews.ends import OUT_OF_SIGHT, ProtocolBroken, WorkerEnd, silent_end
from smartlinkd.crews.protocol import (
    MAX_OUTPUT,
    Failed,
    FromWorker,
    HumanFeedback,
    Inputs,
    ProtocolFault,
    Result,
    Stop,
    ToolResult,
    quoted,
)
from smartlinkd.nurseries import background
from smartlinkd.processes.activity import Activity
from smartlinkd.processes.guarded import ExitStatus, Guarded, Limits, guarded
from smartlinkd.processes.guardian import CHANNEL
from smartlinkd.processes.hiding import Hiding
from smartlinkd.state_files import disk_is_full

logger = logging.getLogger(__name__)

# Enough for a model or a database that a crew keeps in its folder for its run, and no disk is
# filled by one that writes without end.
FILE_SIZE = 1024 * 1024 * 1024
# The share of the grace that a worker has to obey `stop` before it gets SIGTERM.
TERM_AFTER = 0.2
# Seconds in which SIGKILL is seen to have ended it, which takes milliseconds: longer where its
# guardian has been stopped, or the kernel does not let go of it.
KILL_LIMIT = 5.0


class CannotStart(Exception):  # noqa: N818 - says what happened, as its text does
    """The worker could not be started; the text says why. Nothing of it is left."""


class NoRoom(CannotStart):
    """There is none for its folder: on the disk, or in the quota of the daemon's user."""


@dataclass(frozen=True)
class WorkerSettings:
    """How a crew's workers run.

    `memory` is what all processes of one worker together may use, in bytes. `grace` (seconds) is
    the time between the message `stop` and SIGKILL, and what a worker may take to end after its
    last message, or after closing its connection. `max_output` is how many bytes it may say in all.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)
    memory: int
    grace: float = 10.0
    max_output: int = MAX_OUTPUT


class Stopped(Enum):
    """What it took to stop a worker. The value is a sentence for its execution's `error`."""

    WITHOUT_SIGNAL = "the worker ended without a signal"
    BY_SIGTERM = "the worker ended at SIGTERM"
    BY_SIGKILL = "the worker ignored the message `stop` and SIGTERM, and was killed"
    NOT_EVEN_BY_SIGKILL = (
        "the worker ignored the message `stop` and SIGTERM, and may still be running"
    )
    OUT_OF_SIGHT = OUT_OF_SIGHT


class Worker:
    """A running worker. Made by `start_worker()`; of no use after its block."""

    def __init__(self, process: Guarded, channel: Channel, settings: WorkerSettings) -> None:
        self.pid = process.pid
        self.activity = Activity(process.guardian)
        self._process = process
        self._channel = channel
        self._settings = settings
        self._leaves_by = inf
        self._hiding = Hiding(settings.environment)

    @property
    def messages(self) -> AsyncIterator[FromWorker]:
        """What it says, for one task at a time, but for its last message: that is its `end`.

        Read slowly it is held up, and nothing is lost, also of what it said just before it died.
        """
        return self._channel

    def at_hand(self, most: int) -> list[FromWorker]:
        """The next messages, as far as they are here already: they need not be waited for."""
        return self._channel.at_hand(most)

    async def catch_up(self) -> list[FromWorker]:
        """What it has said by now and nobody has come to hear, its `final` message included. Takes
        a second at most, and is not for the time in which somebody takes messages."""
        return await self._channel.catch_up()

    async def send(self, answer: ToolResult | HumanFeedback) -> None:
        """Answer it. One that does not read this within 30 s has broken the protocol.

        Nothing happens when it has ended: the messages tell that. Raises ValueError when it has not
        asked.
        """
        await self._channel.send(answer)

    async def end(self) -> WorkerEnd:
        """Wait for its end and tell it. Messages that were not taken by then are dropped.

        Its last message is its end, though its processes are still there then: see `see_out`. What
        is left of it, if anything, is killed when the block is left.
        """
        async for _ in self._channel:
            pass
        if self._channel.final is not None:
            return self._channel.final
        if self._channel.fault is not None:
            return self._broken(self._channel.fault)
        with trio.move_on_after(self._settings.grace):
            await self._process.wait()
        if self._process.status is None:
            return self._broken(
                ProtocolFault("it closed its descriptor without `result` or `failed` and runs on")
            )
        return silent_end(
            self._process.status,
            unfinished=self._hiding.hide(_text(self._channel.unfinished)),
            stderr=self.stderr_tail,
            memory_limit=self._settings.memory,
        )

    async def see_out(self) -> None:
        """After its end: wait for that of its program, for the grace at most. What it still says is
        not heard. One that said nothing of its end has had its time."""
        if self._channel.final is None:
            return
        grace = self._settings.grace
        self._leaves_by = min(self._leaves_by, trio.current_time() + grace)
        with trio.CancelScope(deadline=self._leaves_by) as patience:
            await self._channel.discard()
            await self._process.wait()
        if patience.cancelled_caught:
            told = "worker process %d does not end within %g s of its last message, and is killed"
            logger.warning(told, self.pid, grace)
        elif (status := self._process.status) is not None and status.memory is not None:
            # Nothing else tells of it: what its program still did may have been of use.
            told = "worker process %d was ended after its last message by %s"
            logger.warning(told, self.pid, status)

    async def hurry(self) -> None:
        """Have it leave sooner: SIGTERM to its process group. It has what is left of the grace."""
        self._process.terminate()
        await self.see_out()

    @property
    def final(self) -> Result | Failed | None:
        """What it has said of its end so far, which stands when it is stopped after that."""
        return self._channel.final

    async def stop(self) -> Stopped:
        """Have it end: `stop`, then SIGTERM to its process group, then SIGKILL.

        Takes the grace at most, and `KILL_LIMIT` more where that is not seen to end it. It is not
        for the time in which somebody takes messages. What it says from here on is dropped.
        """
        grace = self._settings.grace
        async with background(self._channel.discard):
            with trio.move_on_after(grace * TERM_AFTER):
                await self._channel.send(Stop())
                return _unless_out_of_sight(await self._process.wait(), Stopped.WITHOUT_SIGNAL)
            self._process.terminate()
            with trio.move_on_after(grace * (1 - TERM_AFTER)):
                return _unless_out_of_sight(await self._process.wait(), Stopped.BY_SIGTERM)
        logger.warning("a worker (process %d) ignores SIGTERM and is killed", self.pid)
        self._process.kill()
        with trio.move_on_after(KILL_LIMIT):
            return _unless_out_of_sight(await self._process.wait(), Stopped.BY_SIGKILL)
        return Stopped.NOT_EVEN_BY_SIGKILL

    @property
    def stdout_tail(self) -> str:
        """The last 64 KiB of its standard output, without the values of its environment."""
        return self._hiding.hide_in_tail(self._process.stdout_tail)

    @property
    def stderr_tail(self) -> str:
        """The same of standard error."""
        return self._hiding.hide_in_tail(self._process.stderr_tail)

    def _broken(self, fault: ProtocolFault) -> ProtocolBroken:
        line = b"" if fault.line is None else fault.line
        return ProtocolBroken(fault.reason, quoted(self._hiding.hide(_text(line))))


@asynccontextmanager
async def start_worker(
    settings: WorkerSettings, execution_id: str, inputs: Inputs, *, runs: Path
) -> AsyncIterator[Worker]:
    """A worker for the length of the block. Raises CannotStart, which is NoRoom on a full disk.

    `runs` is the folder in which its own folder is made. The `inputs` are on their way when the
    block is entered.
    """
    entered = False
    try:
        # Not trio's socketpair: it would make the worker's end non-blocking, too.
        our_end, theirs = socket.socketpair()
        with trio.socket.from_stdlib_socket(our_end) as ours, theirs:
            channel = Channel(ours, inputs, max_output=settings.max_output)
            delivered = channel.begin()
            folder = _new_folder(runs)
            async with guarded(
                settings.command,
                environment=_environment(settings, execution_id, folder),
                working_folder=folder,
                remove=folder,
                channel=theirs.fileno(),
                limits=Limits(memory=settings.memory, file_size=FILE_SIZE),
                again=True,
            ) as process:
                theirs.close()
                # What is said after its end counts not, should its connection be open somewhere.
                process.at_end(channel.close)
                async with nullcontext() if delivered else background(channel.deliver):
                    entered = True
                    yield Worker(process, channel, settings)
    except OSError as fault:
        if entered:
            raise  # the block's own
        raise CannotStart(_why_not(settings.command[0], fault)) from fault


def _new_folder(runs: Path) -> Path:
    try:
        return Path(tempfile.mkdtemp(prefix="smartlinkd-crew-", dir=runs))
    except OSError as fault:
        if disk_is_full(fault):
            raise NoRoom(str(fault)) from fault
        raise


def _why_not(program: str, fault: OSError) -> str:
    # Of a file that is there, execve(2) says so when its interpreter is not.
    if (
        fault.errno == errno.ENOENT
        and fault.filename == Path(program).name
        and Path(program).is_file()
    ):
        return f"{program}: what its first line (#!) names is not there"
    return f"{program}: {fault}"


def _unless_out_of_sight(status: ExitStatus, how: Stopped) -> Stopped:
    return how if status.is_known else Stopped.OUT_OF_SIGHT


def _text(said: bytes) -> str:
    return said.decode(errors="backslashreplace")


def _environment(settings: WorkerSettings, execution_id: str, folder: Path) -> dict[str, str]:
    """All of its environment."""
    return {
        "PATH": os.defpath,
        "LANG": "C.UTF-8",
        **settings.environment,
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "SMARTLINKD_FD": str(CHANNEL),
        "SMARTLINKD_EXECUTION": execution_id,
    }
