"""Run one worker of a crew for the length of a block.

A worker is any program, in a process tree of its own (processes/process_tree.py). Its folder, in
`runs/`, is its home and is removed with it. Its environment is made here, so it has none of the
daemon's secrets. It speaks the protocol on descriptor 3 (worker_channel.py), so what libraries
print is not taken for messages. Limits: docs/decisions/068-limits-of-workers.md.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from pathlib import Path

import trio

from smartlinkd.crews.outcome import ExitReason, protocol_broken, silent_exit
from smartlinkd.crews.protocol import (
    MAX_ERROR,
    MAX_OUTPUT,
    Failed,
    Inputs,
    Result,
    Stop,
    quoted,
)
from smartlinkd.crews.worker_channel import WorkerChannel
from smartlinkd.nurseries import background
from smartlinkd.processes.output import Redactor
from smartlinkd.processes.process_tree import (
    ProcessTree,
    run_process_tree,
)
from smartlinkd.processes.reaper import CHANNEL

logger = logging.getLogger(__name__)

FILE_SIZE = 1024 * 1024 * 1024
"""Bytes: enough for a model or a database that a crew keeps in its folder for its run, while one
that writes without end does not fill the disk."""
TERM_AFTER = 0.2
"""The share of the grace that a worker has to obey `stop` before it gets SIGTERM."""


class CannotStart(Exception):  # noqa: N818 - says what happened, as its text does
    """The worker could not be started; the text says why. Nothing of it is left."""


@dataclass(frozen=True)
class WorkerSettings:
    """How a crew's workers run.

    `memory` is what all processes of one worker together may use, in bytes. `grace` is the time in
    seconds between the message `stop` and SIGKILL, and from a worker's last message, or from the
    end of its connection, to its exit. `max_output` is how many bytes it may say in all.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)
    memory: int
    grace: float = 10.0
    max_output: int = MAX_OUTPUT


class Stopped(Enum):
    """How a worker was stopped. The value is a sentence for its execution's `error`."""

    WITHOUT_SIGNAL = "the worker ended without a signal"
    BY_SIGTERM = "the worker ended at SIGTERM"
    BY_SIGKILL = "the worker ignored the message `stop` and SIGTERM, and was killed"


class Worker:
    """A running worker. `start_worker()` makes it, and it is of no use after that block.

    `channel` has its messages, and sends it answers.
    """

    def __init__(
        self, process: ProcessTree, channel: WorkerChannel, settings: WorkerSettings
    ) -> None:
        self.pid = process.pid
        self._process = process
        self.channel = channel
        self._settings = settings
        self._leaves_by = inf
        self._redactor = Redactor(settings.environment)

    @property
    def final(self) -> Result | Failed | None:
        """Its last message, with the values of its environment removed from an error."""
        final = self.channel.final
        if not isinstance(final, Failed):
            return final
        error = self._redactor.redact(final.error)[:MAX_ERROR]
        return final.model_copy(update={"error": error})

    async def exit_reason(self) -> ExitReason:
        """Wait until it is known how the worker ends. Messages that were not read are dropped.

        Its last message is its end, though its processes are still there: see `drain`. What is left
        of it is killed when the block is left.
        """
        async for _ in self.channel:
            pass
        if (final := self.final) is not None:
            return final
        if (fault := self.channel.fault) is not None:
            line = self._redactor.redact(_text(fault.line or b""))
            return protocol_broken(self._redactor.redact(fault.reason), quoted(line))
        with trio.move_on_after(self._settings.grace):
            await self._process.wait()
        if self._process.status is None:
            return protocol_broken(
                "it closed its descriptor without `result` or `failed` and runs on"
            )
        return silent_exit(
            self._process.status,
            unfinished=self._redactor.redact(_text(self.channel.unfinished)),
            stderr=self.stderr_tail,
            memory_limit=self._settings.memory,
        )

    async def drain(self) -> None:
        """Wait for the program's exit after its last message, for the grace at most.

        What it still says is dropped. A worker without a last message has had its time.
        """
        if self.channel.final is None:
            return
        grace = self._settings.grace
        self._leaves_by = min(self._leaves_by, trio.current_time() + grace)
        with trio.CancelScope(deadline=self._leaves_by) as timeout:
            await self.channel.discard()
            await self._process.wait()
        if timeout.cancelled_caught:
            text = "worker process %d does not end within %g s of its last message, and is killed"
            logger.warning(text, self.pid, grace)

    async def terminate(self) -> None:
        """Send SIGTERM after the last message. The program has what is left of the grace."""
        self._process.terminate()
        await self.drain()

    async def stop(self) -> Stopped:
        """End the worker: by `stop`, then SIGTERM to its process group, then SIGKILL.

        This takes the grace at most. The end of the block waits until a killed one is gone. No task
        may read messages meanwhile; they are dropped.
        """
        grace = self._settings.grace
        async with background(self.channel.discard):
            with trio.move_on_after(grace * TERM_AFTER):
                await self.channel.send(Stop())
                await self._process.wait()
                return Stopped.WITHOUT_SIGNAL
            self._process.terminate()
            with trio.move_on_after(grace * (1 - TERM_AFTER)):
                await self._process.wait()
                return Stopped.BY_SIGTERM
        logger.warning("a worker (process %d) ignores SIGTERM and is killed", self.pid)
        self._process.kill()
        return Stopped.BY_SIGKILL

    @property
    def stdout_tail(self) -> str:
        """The last 64 KiB of its standard output, with the values of its environment removed."""
        return self._redactor.redact_tail(self._process.stdout_tail)

    @property
    def stderr_tail(self) -> str:
        """The same of standard error."""
        return self._redactor.redact_tail(self._process.stderr_tail)


@asynccontextmanager
async def start_worker(
    settings: WorkerSettings, execution_id: str, inputs: Inputs, *, runs: Path
) -> AsyncIterator[Worker]:
    """Run a worker while the block runs. The `inputs` are on their way when it is entered.

    Its own folder is made in `runs`. Raises `CannotStart`.
    """
    entered = False
    try:
        # Not trio's socketpair: it would make the worker's end non-blocking, too.
        our_end, theirs = socket.socketpair()
        with trio.socket.from_stdlib_socket(our_end) as ours, theirs:
            channel = WorkerChannel(ours, inputs, max_output=settings.max_output)
            folder = Path(tempfile.mkdtemp(prefix="smartlinkd-crew-", dir=runs))
            async with run_process_tree(
                settings.command,
                environment=_environment(settings, execution_id, folder),
                working_folder=folder,
                remove=folder,
                channel=theirs.fileno(),
                memory=settings.memory,
                file_size=FILE_SIZE,
                # What is said after its end does not count, should others hold its connection.
                on_exit=channel.close,
            ) as process:
                theirs.close()
                async with background(channel.deliver):
                    entered = True
                    yield Worker(process, channel, settings)
    except OSError as fault:
        if entered:
            raise  # the block's own
        raise CannotStart(_why_not(settings.command[0], fault)) from fault


def _why_not(program: str, fault: OSError) -> str:
    # Of a file that is there, execve(2) says so when its interpreter is not.
    if (
        fault.errno == errno.ENOENT
        and fault.filename == Path(program).name
        and Path(program).is_file()
    ):
        return f"{program}: what its first line (#!) names is not there"
    return f"{program}: {fault}"


def _text(said: bytes) -> str:
    return said.decode(errors="backslashreplace")


def _environment(settings: WorkerSettings, execution_id: str, folder: Path) -> dict[str, str]:
    """Return all of the worker's environment."""
    return {
        "PATH": os.defpath,
        "LANG": "C.UTF-8",
        **settings.environment,
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "SMARTLINKD_FD": str(CHANNEL),
        "SMARTLINKD_EXECUTION": execution_id,
    }
