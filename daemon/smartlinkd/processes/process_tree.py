"""Run a command for the length of a block. Nothing of its process tree is left after the block.

    async with run_process_tree(["/usr/bin/thing"], environment={}, working_folder=folder) as tree:
        status = await tree.wait()

That holds for a return, an error, a cancellation at any await, and when the daemon is killed.
Each command has a reaper (`reaper.py`), which the fork server forks. This is the daemon's side.
docs/decisions/040-process-trees.md and 041-fork-server.md tell what was rejected.
"""

from __future__ import annotations

import errno
import logging
import os
import pwd
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Final

import trio

from smartlinkd.memfd import sealed_file
from smartlinkd.nurseries import background
from smartlinkd.processes.output import OutputTail
from smartlinkd.processes.reaper import CommandSpec, is_hung_up, remove_folder
from smartlinkd.threads import NoThread, on_thread

logger = logging.getLogger(__name__)

REMOVE_PAUSE: Final = 0.1
"""Seconds between two attempts to remove a folder."""

_PACKAGES: Final = Path(__file__).parents[2]
_RUN_SERVER: Final = """
import sys
sys.path.append(sys.argv[1])
from smartlinkd.processes import fork_server
fork_server.serve()
"""


@dataclass(frozen=True)
class Limits:
    """Bounds on how long process trees may take, in seconds.

    Attributes:
        start: from the request until the program runs. It takes milliseconds, but a disk may stall.
        leave: from the end of the block until the reaper is done. It gives its tree 5 s to die.
        kill: until a killed reaper or fork server has gone.
        remove: until a folder is removed that no reaper removed.
    """

    start: float = 60.0
    leave: float = 10.0
    kill: float = 1.0
    remove: float = 2.0


@dataclass(frozen=True)
class ExitStatus:
    """The end of a command: an exit code, a signal or its memory limit.

    With none of them its reaper was killed, and the command may still be running.

    Attributes:
        memory: bytes that the tree used when it was ended for that.
    """

    code: int | None = None
    signal: int | None = None
    memory: int | None = None

    @classmethod
    def of(cls, code: int) -> ExitStatus:
        """Return the status for an exit code, or for a signal's negative number."""
        return cls(code=code) if code >= 0 else cls(signal=-code)

    def __str__(self) -> str:
        if self.code is not None:
            return f"exit code {self.code}"
        if self.signal is not None:
            return f"signal {self.signal} ({signal.strsignal(self.signal)})"
        if self.memory is not None:
            return f"its memory limit: it used {self.memory // 2**20} MiB"
        return "an unknown status: its reaper was killed"


class ProcessTree:
    """A running command and all processes below it. Made by `run_process_tree()`.

    Attributes:
        pid: the command's process id.
        status: how the command ended; None while it runs.
        has_removed_folder: True once the reaper removed the folder that it was to remove.
    """

    def __init__(
        self,
        name: str,
        *,
        limits: Limits,
        kill_server: Callable[[], None],
        control: FileIO,
        status_fd: int,
        stdout_fd: int,
        stderr_fd: int,
        on_exit: Callable[[], None] | None,
    ) -> None:
        self.pid = 0
        self.status: ExitStatus | None = None
        self.has_removed_folder = False
        self._name = name
        self._limits = limits
        self._kill_server = kill_server
        self._control = control
        self._status_fd = status_fd
        self._stdout = OutputTail(stdout_fd)
        self._stderr = OutputTail(stderr_fd)
        self._on_exit = on_exit
        self._reaper_pid = 0  # until the reaper reports it
        self._left: str | None = None  # what may be left over, for the log
        self._start_error: OSError | None = None
        self._started = trio.Event()
        self._exited = trio.Event()
        self._reaper_ended = trio.Event()
        # The reaper is followed to its end, also when the block is cancelled.
        self._following = trio.CancelScope(shield=True)

    async def wait(self) -> ExitStatus:
        """Wait for the end of the command. Its descendants may still be dying."""
        await self._exited.wait()
        assert self.status is not None  # noqa: S101 - set before the event, for the type checker
        return self.status

    def terminate(self) -> None:
        """Send SIGTERM to the command's process group. Harmless after its end."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL, likewise. The command's end ends the rest of its tree."""
        self._signal(signal.SIGKILL)

    @property
    def stdout_tail(self) -> str:
        """The last 64 KiB that the tree wrote to standard output."""
        return self._stdout.text

    @property
    def stderr_tail(self) -> str:
        """The last 64 KiB that the tree wrote to standard error."""
        return self._stderr.text

    def _signal(self, number: signal.Signals) -> None:
        # The reaper passes signals on: it alone knows that the process id is still the command's.
        with suppress(BrokenPipeError):  # the reaper has gone, so the command has
            if not self._control.closed:
                self._control.write(bytes([number]))

    async def wait_for_start(self) -> None:
        """Wait until the program runs. Raises `OSError` if it cannot be started, or is late."""
        with trio.move_on_after(self._limits.start):
            await self._started.wait()
        if not self._started.is_set():
            late = f"it did not start within {self._limits.start:g} s"
            raise OSError(errno.ETIMEDOUT, late, self._name)
        if self._start_error is not None:
            raise self._start_error

    async def close(self) -> None:
        """Have the tree ended, and wait for the reaper to be done. Bounded, not cancellable."""
        self._control.close()
        with trio.move_on_after(self._limits.leave, shield=True):
            await self._reaper_ended.wait()
        if not self._reaper_ended.is_set():
            self._kill_reaper()
            with trio.move_on_after(self._limits.kill, shield=True):
                await self._reaper_ended.wait()
        self._following.cancel()
        if self._left is not None:
            logger.error("%s: something may be left over: %s", self._name, self._left)

    def _kill_reaper(self) -> None:
        if not self._reaper_pid:
            logger.error("%s: the fork server does not answer and is killed", self._name)
            self._kill_server()
            return
        logger.error("%s: its reaper does not end and is killed", self._name)
        # The reaper holds the status pipe: while that is open, the process id is not another's.
        if not is_hung_up(self._status_fd):
            with suppress(ProcessLookupError):  # it ended just now
                os.kill(self._reaper_pid, signal.SIGKILL)

    async def follow(self) -> None:
        """Read what the reaper reports and what the tree writes, until the reaper has ended."""
        with self._following:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._stdout.follow)
                nursery.start_soon(self._stderr.follow)
                await self._follow_status()
                nursery.cancel_scope.cancel()
        if not self._started.is_set():
            error = OSError(errno.ECHILD, "its reaper died before the start", self._name)
            self._set_started(error)
        if self.status is None:
            self._set_exited(ExitStatus())
        self._reaper_ended.set()

    async def _follow_status(self) -> None:
        unfinished = b""
        while True:
            await trio.lowlevel.wait_readable(self._status_fd)
            data = os.read(self._status_fd, 4096)
            if not data:
                return
            *lines, unfinished = (unfinished + data).split(b"\n")
            for line in lines:
                what, _, about = line.decode().partition(" ")
                self._handle_report(what, about)

    def _handle_report(self, what: str, about: str) -> None:
        match what:
            case "reaper":
                self._reaper_pid = int(about)
                self._left = "its reaper was killed"
            case "started":
                self.pid = int(about)
                self._set_started()
            case "failed":
                number, _, step = about.partition(" ")
                where = self._name if step == "exec" else f"{self._name} ({step})"
                self._set_started(OSError(int(number), os.strerror(int(number)), where))
            case "excess":
                self._set_exited(ExitStatus(memory=int(about)))
            case "ended":
                self._set_exited(ExitStatus.of(os.waitstatus_to_exitcode(int(about))))
            case "gone":
                self._left = None
            case "removed":
                self.has_removed_folder = True
            case "left":
                self._left = about

    def _set_started(self, error: OSError | None = None) -> None:
        self._start_error = error
        self._started.set()

    def _set_exited(self, status: ExitStatus) -> None:
        self._stdout.read()  # its last words are in the pipes by now
        self._stderr.read()
        self.status = status
        self._exited.set()
        if self._on_exit is not None:
            self._on_exit()


@asynccontextmanager
async def run_process_tree(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    working_folder: Path,
    user: pwd.struct_passwd | None = None,
    remove: Path | None = None,
    stdin: int | None = None,
    channel: int | None = None,
    memory: int | None = None,
    file_size: int | None = None,
    on_exit: Callable[[], None] | None = None,
) -> AsyncIterator[ProcessTree]:
    """Run `command` while the block runs.

    Args:
        environment: all of its environment.
        user: the user it drops to, which only root can do.
        remove: a folder that belongs to this run. It is removed after the block, also when the
            daemon is killed in it, or nothing could be started.
        stdin: the command's standard input, else /dev/null.
        channel: the command's descriptor 3. The caller may close `channel` and `stdin` in the
            block.
        memory: bytes that its whole tree may use.
        file_size: bytes that any one file may have.
        on_exit: called when the command has ended, before a task that waits for that goes on.

    Raises:
        OSError: it cannot be started, or is not within `Limits.start`.
    """
    async with fork_server() as server:
        tree = None
        try:
            spec = CommandSpec(
                [os.fsencode(word) for word in command],
                {os.fsencode(name): os.fsencode(value) for name, value in environment.items()},
                os.fsencode(working_folder),
                user=(user.pw_uid, user.pw_gid) if user else None,
                memory=memory,
                file_size=file_size,
                remove=os.fsencode(remove) if remove else None,
            )
            with _forked(server, spec, stdin, channel, on_exit) as tree:
                async with background(tree.follow):
                    try:
                        await tree.wait_for_start()
                        yield tree
                    finally:
                        await tree.close()
        finally:
            if remove is not None and not (tree is not None and tree.has_removed_folder):
                await _remove_folder(remove, within=server.limits.remove)


@contextmanager
def _forked(
    server: ForkServer,
    spec: CommandSpec,
    stdin: int | None,
    channel: int | None,
    on_exit: Callable[[], None] | None,
) -> Iterator[ProcessTree]:
    """Have a reaper run a command. Leaving the block closes the daemon's ends of its pipes."""
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
            control_end, control_fd = os.pipe()
            theirs.callback(os.close, control_end)
            control = ours.enter_context(FileIO(control_fd, "wb"))
            if stdin is None:
                stdin = os.open(os.devnull, os.O_RDONLY)
                theirs.callback(os.close, stdin)
            streams = [stdin, stdout_end, stderr_end, *([] if channel is None else [channel])]
            kill_server = server.fork_reaper(spec, status_end, control_end, *streams)
        yield ProcessTree(
            Path(os.fsdecode(spec.command[0])).name,
            limits=server.limits,
            kill_server=kill_server,
            control=control,
            status_fd=status,
            stdout_fd=stdout,
            stderr_fd=stderr,
            on_exit=on_exit,
        )


async def _remove_folder(folder: Path, *, within: float) -> None:
    """Remove what no reaper removed: it did not start, or was killed."""
    with trio.move_on_after(within, shield=True):
        while True:  # a killed reaper's tree may still be dying, and writing
            with suppress(NoThread):
                if await on_thread(_is_removed, folder):
                    return
            await trio.sleep(REMOVE_PAUSE)
    logger.error("the folder %s cannot be removed", folder)


def _is_removed(folder: Path) -> bool:
    if folder.exists():
        remove_folder(os.fsencode(folder))
    return not folder.exists()


class ForkServer:
    """The fork server, which is started at first use, and again after it was killed."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket

    def fork_reaper(self, spec: CommandSpec, status: int, *others: int) -> Callable[[], None]:
        """Have a reaper run a command. Return a function that kills the server that was asked.

        This has no checkpoint, so it cannot be cancelled half-way.

        Args:
            status: the status pipe. It and `others` are what `reaper.main` takes beside the spec,
                and the caller may close them afterwards.

        Raises:
            OSError: the server cannot be started or asked.
        """
        content = sealed_file("command", spec.encode())
        descriptors = [status, content, *others]
        try:
            if self._process is not None:
                try:
                    socket.send_fds(self._socket, [b"+"], descriptors)
                except (BrokenPipeError, ConnectionResetError):
                    end = ExitStatus.of(self._wait(self._process))
                    text = "the fork server has ended (%s), another is started"
                    logger.warning(text, end)
                else:
                    return self._process.kill
            self._process = self._start()
            socket.send_fds(self._socket, [b"+"], descriptors)
            return self._process.kill
        finally:
            os.close(content)

    def _start(self) -> subprocess.Popen[bytes]:
        self._process = None
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setblocking(False)
        try:
            with theirs:
                return subprocess.Popen(  # noqa: S603 - nothing of it is from outside
                    [sys.executable, "-I", "-S", "-c", _RUN_SERVER, str(_PACKAGES)],
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    env={},
                    cwd="/",
                    start_new_session=True,  # a Ctrl-C is for the daemon alone
                )
        except BaseException:
            self._socket.close()
            raise

    def _wait(self, process: subprocess.Popen[bytes]) -> int:
        self._socket.close()
        return process.wait()

    async def close(self) -> None:
        """End the server, if it runs, by closing its socket. Bounded, not cancellable."""
        if self._process is None:
            return
        self._socket.shutdown(socket.SHUT_WR)
        with trio.move_on_after(self.limits.kill, shield=True) as patience:
            await trio.lowlevel.wait_readable(self._socket)
        if patience.cancelled_caught:
            logger.error("the fork server does not end and is killed")
            self._process.kill()
        self._wait(self._process)


_shared: ContextVar[ForkServer] = ContextVar("fork_server")


@asynccontextmanager
async def fork_server(limits: Limits | None = None) -> AsyncIterator[ForkServer]:
    """Have one server for all that is run in the block, and in tasks that are started in it.

    A block within another one has that one's server.
    """
    around = _shared.get(None)
    if around is not None:
        yield around
        return
    server = ForkServer(limits or Limits())
    token = _shared.set(server)
    try:
        yield server
    finally:
        _shared.reset(token)
        await server.close()
