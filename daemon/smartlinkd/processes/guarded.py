"""Run a command for the length of a block; leaving the block leaves nothing of it.

    async with guarded(["/usr/bin/thing"], environment={}, working_folder=folder) as thing:
        status = await thing.wait()

The problem: a program that starts more programs has to be gone, whole, when its user is done with
it: by return, by error, by cancellation at any await (also in the middle of the start), and when
the daemon itself is killed.

The choice: each command gets a guardian (see `guardian.py`), and this is the daemon's side of it.
What ties the two are pipes. To close our end of the lifeline, which the kernel does for us when we
die, ends the tree; the guardian says when all of it is gone; and when nobody has the other end of
the status pipe before that, the guardian was killed.

Rejected: `trio.run_process` and `trio.lowlevel.open_process`, which know one process, not a tree;
and signalling the command by its number from here, where the number may be another process's by
now. The guardian, who alone reaps the command, passes signals on.
"""

from __future__ import annotations

import errno
import logging
import os
import pwd
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

import trio

from smartlinkd.nurseries import background
from smartlinkd.processes.guardian import Order
from smartlinkd.processes.guardians import Guardian, Guardians, guardians
from smartlinkd.processes.removing import remove_folder
from smartlinkd.processes.tail import Tail
from smartlinkd.threads import NoThread, on_thread

logger = logging.getLogger(__name__)

START_LIMIT = 60.0
"""Seconds from the order until the program runs. It takes milliseconds, and as long as a disk that
stalls where the program's file is on one; but whoever is to start it may hang for ever."""

# A guardian gives its tree 5 s to die (and needs milliseconds); then it is killed itself.
LEAVE_LIMIT = 10.0
KILLED_GUARDIAN_LIMIT = 1.0
REMOVE_TRIES = 20
REMOVE_PAUSE = 0.1


@dataclass(frozen=True)
class User:
    """Who a command runs as."""

    name: str
    uid: int
    gid: int


def user_named(name: str) -> User:
    """The local user `name`. Raises KeyError when there is none."""
    entry = pwd.getpwnam(name)
    return User(name, entry.pw_uid, entry.pw_gid)


@dataclass(frozen=True)
class Limits:
    """What a command may use, in bytes: memory in its whole tree, and the size of any one file."""

    memory: int
    file_size: int


@dataclass(frozen=True)
class ExitStatus:
    """How a command ended: with an exit code, by a signal, or (all None) nobody knows how.

    `memory` is set when its tree was ended for using that many bytes.
    """

    code: int | None = None
    signal: int | None = None
    memory: int | None = None

    @property
    def is_known(self) -> bool:
        """Else its guardian was killed, and it may still be running."""
        return self != ExitStatus()

    def __str__(self) -> str:
        if self.code is not None:
            return f"exit code {self.code}"
        if self.signal is not None:
            return f"signal {self.signal} ({signal.strsignal(self.signal)})"
        if self.memory is not None:
            return f"its memory limit: it used {self.memory // 2**20} MiB"
        return "an unknown status: its guardian was killed"


class Guarded:
    """A running command. Made by `guarded()`; of no use after its block."""

    def __init__(
        self,
        name: str,
        *,
        guardian: Guardian,
        lifeline: FileIO,
        status_fd: int,
        stdout_fd: int,
        stderr_fd: int,
    ) -> None:
        self.pid = 0  # the command's own process id; set before the block is entered
        self.status: ExitStatus | None = None  # set when the command has ended
        self._at_end: Callable[[], None] | None = None
        self._name = name
        self._guardian = guardian
        self._lifeline = lifeline
        self._status_fd = status_fd
        self._stdout = Tail(stdout_fd)
        self._stderr = Tail(stderr_fd)
        self._fault: OSError | None = None
        self._started = trio.Event()
        self._ended = trio.Event()
        self._gone = False  # all of it, and the folder to remove: its guardian said so
        self._left: str | None = None  # what may be left over, while it is not known to be gone
        self._done = trio.Event()  # its guardian is, or has ended
        # Until then: only `_leave` ends it sooner.
        self._following = trio.CancelScope(shield=True)

    async def wait(self) -> ExitStatus:
        """Wait for the end of the command (its descendants may still be dying)."""
        await self._ended.wait()
        assert self.status is not None  # noqa: S101 - set before the event, for the type checker
        return self.status

    def at_end(self, call: Callable[[], None]) -> None:
        """Have one thing done when the command ends, before anybody who waits for that goes on."""
        self._at_end = call
        if self.status is not None:
            call()

    def terminate(self) -> None:
        """SIGTERM to the command and its process group. Harmless afterwards."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL, likewise. The command's end ends the rest of its tree."""
        self._signal(signal.SIGKILL)

    @property
    def guardian(self) -> int:
        """The process id of its guardian, below which its tree is: also what lost its parent."""
        return self._guardian.pid

    @property
    def stdout_tail(self) -> str:
        """The last 64 KiB of what the command and its descendants wrote to standard output."""
        return self._stdout.text

    @property
    def stderr_tail(self) -> str:
        """The same of standard error."""
        return self._stderr.text

    def _signal(self, number: signal.Signals) -> None:
        with suppress(BrokenPipeError):  # the guardian has gone, so the command has
            if not self._lifeline.closed:
                self._lifeline.write(bytes([number]))

    async def _start(self) -> None:
        with trio.move_on_after(START_LIMIT):
            await self._started.wait()
        if not self._started.is_set():
            late = f"it did not start within {START_LIMIT:g} s"
            raise OSError(errno.ETIMEDOUT, late, self._name)
        if self._fault is not None:
            raise self._fault

    async def _leave(self) -> None:
        """Let go and wait for the guardian to be done. Bounded, and not to be cancelled."""
        self._lifeline.close()
        try:
            with trio.CancelScope(shield=True):
                if not await self._is_done(within=LEAVE_LIMIT):
                    self._guardian.give_up(self._name)
                    await self._is_done(within=KILLED_GUARDIAN_LIMIT)
        finally:
            self._following.cancel()
        if self._left is not None:
            logger.error("%s: something may be left over: %s", self._name, self._left)

    async def _is_done(self, *, within: float) -> bool:
        with trio.move_on_after(within):
            await self._done.wait()
        return self._done.is_set()

    async def _follow_status(self) -> None:
        """Read what the guardian reports, until it is done or has ended."""
        with self._following:
            await self._read_status()
        if not self._started.is_set():
            self._fault = OSError(errno.ECHILD, "its guardian died before the start", self._name)
            self._started.set()
        if self.status is None:
            self._note_end(ExitStatus())
        self._done.set()

    async def _read_status(self) -> None:
        unfinished = b""
        while not self._gone:
            await trio.lowlevel.wait_readable(self._status_fd)
            data = os.read(self._status_fd, 4096)
            if not data:
                break
            *lines, unfinished = (unfinished + data).split(b"\n")
            for line in lines:
                self._note(*line.decode().split(" ", 1))

    def _note(self, what: str, about: str = "") -> None:
        match what:
            case "guardian":
                self._guardian.pid = int(about)
                self._left = "its guardian was killed"
            case "started":
                self.pid = int(about)
                self._started.set()
            case "failed":
                number, _, step = about.partition(" ")
                where = self._name if step == "exec" else f"{self._name} ({step})"
                self._fault = OSError(int(number), os.strerror(int(number)), where)
                self._started.set()
            case "excess":
                self._note_end(ExitStatus(memory=int(about)))
            case "ended":
                code = os.waitstatus_to_exitcode(int(about))
                self._note_end(ExitStatus(code=code) if code >= 0 else ExitStatus(signal=-code))
            case "removing":
                self._left = None  # its folder is, and is seen to (`_see_removed`)
            case "left":
                self._left = about
            case "gone":
                self._gone = True
                self._left = None

    def _note_end(self, status: ExitStatus) -> None:
        self._stdout.read()  # its last words are in the pipes by now
        self._stderr.read()
        self.status = status
        self._ended.set()
        if self._at_end is not None:
            self._at_end()


@asynccontextmanager
async def guarded(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    working_folder: Path,
    user: User | None = None,
    remove: Path | None = None,
    stdin: int | None = None,
    channel: int | None = None,
    limits: Limits | None = None,
    again: bool = False,
) -> AsyncIterator[Guarded]:
    """Run `command` while the block runs. Raises OSError when it cannot be started, or is not
    within `START_LIMIT`.

    `environment` is all of its environment. `user` is whom it drops to, which only root can do.
    `remove` is a folder that belongs to this run: it is gone after the block, also when the
    daemon is killed in it, and also when nothing could be started. `stdin` and `channel` are
    descriptors of the caller's that the command gets as its standard input (else it is /dev/null)
    and as its descriptor 3; once in the block the caller's are of no more use. `again` tells that
    the same command is likely to be run again soon: its guardian waits for that. The ends of
    standard output and error are kept.
    """
    process = None
    try:
        order = Order(
            [os.fsencode(word) for word in command],
            {os.fsencode(name): os.fsencode(environment[name]) for name in environment},
            os.fsencode(working_folder),
            user=(user.uid, user.gid) if user else None,
            limits=(limits.memory, limits.file_size) if limits else None,
            remove=os.fsencode(remove) if remove else None,
        )
        async with guardians() as source:
            name = Path(command[0]).name
            with _ordered(source, order, name, stdin, channel, again=again) as process:
                async with background(process._follow_status):
                    try:
                        await process._start()
                        yield process
                    finally:
                        await process._leave()
    finally:
        if remove is not None and not (process is not None and process._gone):
            await _see_removed(remove)


@contextmanager
def _ordered(
    source: Guardians,
    order: Order,
    name: str,
    stdin: int | None,
    channel: int | None,
    *,
    again: bool,
) -> Iterator[Guarded]:
    """Have a guardian begin. On leaving, our ends of its pipes are closed."""
    with ExitStack() as ours:
        with ExitStack() as theirs:

            def pipe_to_us() -> tuple[int, int]:
                read_end, write_end = os.pipe()
                ours.callback(os.close, read_end)
                theirs.callback(os.close, write_end)
                return read_end, write_end

            status, status_end = pipe_to_us()
            os.set_blocking(status, False)
            stdout, stdout_end = pipe_to_us()
            stderr, stderr_end = pipe_to_us()
            lifeline_end, lifeline_fd = os.pipe()
            theirs.callback(os.close, lifeline_end)
            lifeline = ours.enter_context(FileIO(lifeline_fd, "wb"))
            if stdin is None:
                stdin = os.open(os.devnull, os.O_RDONLY)
                theirs.callback(os.close, stdin)
            streams = [stdin, stdout_end, stderr_end, *([] if channel is None else [channel])]
            guardian = source.start(order, status_end, lifeline_end, *streams)
        process = Guarded(
            name,
            guardian=guardian,
            lifeline=lifeline,
            status_fd=status,
            stdout_fd=stdout,
            stderr_fd=stderr,
        )
        try:
            for tail in (process._stdout, process._stderr):
                source.tails.add(tail)
                ours.callback(source.tails.drop, tail)
            yield process
        finally:
            # One that could not start it may be half-way to that: another user's, in a folder.
            if again and process.pid and process._gone:
                source.take_back(guardian)
            else:
                guardian.dismiss()


async def _see_removed(folder: Path) -> None:
    """Remove what the guardian did not, because there was none or because it was killed.

    What it guarded was killed with it, but may still be on its way out: so more than one try.
    """
    with trio.CancelScope(shield=True):
        for _ in range(REMOVE_TRIES):
            with suppress(NoThread):
                if await on_thread(_removed, folder):
                    return
            await trio.sleep(REMOVE_PAUSE)
    logger.error("the folder %s cannot be removed", folder)


def _removed(folder: Path) -> bool:
    if folder.exists():
        remove_folder(os.fsencode(folder))
    return not folder.exists()
