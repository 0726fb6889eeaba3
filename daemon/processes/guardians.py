"""Where guardians come from: the daemon's side of `fork_server.py`.

    async with shared_guardians():     # around all of a program that runs many commands
        ...
    async with guardians() as source:  # those, or for this block a server of its own
        source.start(order, descriptors)

The problem: a command's start has to be quick, and each has to have a guardian.

The choice: one server for as long as the daemon runs, who forks them. It is started by the first
who needs it, and again by the next when it has gone: so it needs nobody to look after it. To start
it, and to ask it, is no await: neither can be cancelled half-way. What is asked for and then not
wanted ends by its lifeline, like all that a guardian does.
"""

from __future__ import annotations

import array
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from pathlib import Path

import trio

from daemon.processes.sealed import sealed_file

logger = logging.getLogger(__name__)

PACKAGES = Path(__file__).parent.parent
RUN_SERVER = """
import sys
sys.path.append(sys.argv[1])
from processes import fork_server, guardian
fork_server.serve(int(sys.argv[2]), guardian.main)
"""
END_LIMIT = 1.0
"""Seconds; a server ends with its last guardian when nobody asks any more, unless it is stopped."""


class Guardians:
    """Made by `guardians()`."""

    def __init__(self) -> None:
        self._server: Server | None = None

    def start(self, order: bytes, status: int, *others: int) -> Server:
        """Have a guardian begin on `order`, with these descriptors; see `guardian.py`.

        They are the caller's, and can be closed afterwards. Who was asked is returned. Raises
        `OSError`.
        """
        content = sealed_file("order", order)
        try:
            return self._ask([status, content, *others])
        finally:
            os.close(content)

    async def close(self) -> None:
        """End the server. Bounded, and not to be cancelled."""
        server, self._server = self._server, None
        if server is not None:
            await server.close()

    def _ask(self, descriptors: Sequence[int]) -> Server:
        if self._server is not None:
            try:
                self._server.ask(descriptors)
            except (BrokenPipeError, ConnectionResetError):
                logger.warning(
                    "the server of guardians has ended (%s), another is started",
                    self._server.bury(),
                )
                self._server = None
            else:
                return self._server
        self._server = Server()
        self._server.ask(descriptors)
        return self._server


class Server:
    """One server process."""

    def __init__(self) -> None:
        """Start it. Raises `OSError` when there can be none."""
        self._door, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._door.setblocking(False)
        program = [sys.executable, "-I", "-S", "-c", RUN_SERVER]
        try:
            with theirs, _signals_blocked():
                self._process = subprocess.Popen(  # noqa: S603 - nothing of it is from outside
                    [*program, str(PACKAGES), str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    env={},
                    cwd=tempfile.gettempdir(),
                    pass_fds=[theirs.fileno()],
                )
        except BaseException:
            self._door.close()
            raise

    def ask(self, descriptors: Sequence[int]) -> None:
        """Raises `OSError`, `BrokenPipeError` when it has gone."""
        rights = array.array("i", descriptors)
        self._door.sendmsg([b"+"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])

    def give_up(self) -> None:
        """End it: it does not do what it was asked for. The next to ask starts another."""
        self._process.kill()

    def bury(self) -> str:
        """Once its end of the socket is closed, so within microseconds. What it ended with."""
        self._door.close()
        code = self._process.wait()
        return f"exit code {code}" if code >= 0 else f"signal {-code}"

    async def close(self) -> None:
        """End it, when it has not ended."""
        self._door.shutdown(socket.SHUT_WR)
        with trio.CancelScope(shield=True):
            if not await self._ends():
                logger.error("the server of guardians does not end and is killed")
                self.give_up()
                if not await self._ends():
                    self._door.close()  # it waits for a dead disk, so nobody waits for it
                    return
        self.bury()

    async def _ends(self) -> bool:
        with trio.move_on_after(END_LIMIT):
            await trio.lowlevel.wait_readable(self._door)
            return True
        return False


_shared: ContextVar[Guardians] = ContextVar("guardians")


@asynccontextmanager
async def guardians() -> AsyncIterator[Guardians]:
    """Those of the `shared_guardians()` around, or for this block some of their own."""
    shared = _shared.get(None)
    if shared is not None:
        yield shared
        return
    own = Guardians()
    try:
        yield own
    finally:
        await own.close()


@asynccontextmanager
async def shared_guardians() -> AsyncIterator[None]:
    """All that is run in the block, and in the tasks that are started in it, has one server."""
    async with guardians() as ours:
        token = _shared.set(ours)
        try:
            yield
        finally:
            _shared.reset(token)


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """A process forked in here starts with all signals blocked: a Ctrl-C cannot end it early."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
