"""Where guardians come from: the daemon's side of `fork_server.py`.

    async with shared_guardians():     # around all of a program that runs many commands
        ...
    async with guardians() as source:  # those, or for this block a server of its own
        guardian = source.start(order, descriptors)
        ...                            # until it says that it is done
        source.take_back(guardian)     # or, when it was not: guardian.dismiss()

The problem: a command's start has to be quick, and each has to have a guardian.

The choice: one server for as long as the daemon runs, who forks them. It is started by the first
who needs it, and again by the next when it has gone: so it needs nobody to look after it. To start
it, and to ask it, is no await: neither can be cancelled half-way. What is asked for and then not
wanted ends by its lifeline, like all that a guardian does.

A guardian that is done can wait a minute for more of the same: the same command, by the same user,
in the same limits. A third of what an execution took beside its program was its guardian's making
and end. Rejected: that it does something else then. A limit that it has set for itself it could not
always take back; and in what it has used of its memory may be keys that the last command was given,
and whoever runs as the same user could read it.
"""

from __future__ import annotations

import array
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import NamedTuple

import trio

from smartlinkd.memfd import sealed_file
from smartlinkd.nurseries import background
from smartlinkd.processes.guardian import Order, is_closed
from smartlinkd.processes.tail import Tails

logger = logging.getLogger(__name__)

PACKAGES = Path(__file__).parent.parent
RUN_SERVER = """
import sys
sys.path.append(sys.argv[1])
from processes import fork_server, guardian
fork_server.serve(int(sys.argv[2]), guardian.main)
"""
MOST_IDLE = 8
"""Guardians that wait for more to do, for a minute at most. Each has a megabyte of its own."""
END_LIMIT = 1.0
"""Seconds; a server ends with its last guardian when nobody asks any more, unless it is stopped."""


class Guardians:
    """Made by `guardians()`."""

    def __init__(self) -> None:
        self.tails = Tails()
        """Who reads what is printed by all that they guard."""
        self._server: Server | None = None
        self._idle: list[Guardian] = []  # who has waited longest is the first

    def start(self, order: Order, status: int, *others: int) -> Guardian:
        """Have a guardian begin on `order`, with these descriptors; see `guardian.py`.

        They are the caller's, and can be closed afterwards. Raises `OSError`, and `ValueError` for
        what execve(2) cannot be given.
        """
        content = sealed_file("order", order.written())
        try:
            return self._ask(Kind.of(order), [status, content, *others])
        finally:
            os.close(content)

    def take_back(self, guardian: Guardian) -> None:
        """It has run what was ordered, and said that all is gone: it may do the same again."""
        self._idle.append(guardian)
        if len(self._idle) > MOST_IDLE:
            self._idle.pop(0).dismiss()

    async def close(self) -> None:
        """End the server, and who waits. Bounded, and not to be cancelled."""
        self.tails.close()
        while self._idle:
            self._idle.pop().dismiss()
        server, self._server = self._server, None
        if server is not None:
            await server.close()

    def _ask(self, kind: Kind, descriptors: Sequence[int]) -> Guardian:
        for guardian in [each for each in reversed(self._idle) if each.kind == kind]:
            self._idle.remove(guardian)
            if guardian.ask(descriptors):
                return guardian
        if self._server is not None:
            try:
                return self._server.fork(kind, descriptors)
            except (BrokenPipeError, ConnectionResetError):
                logger.warning(
                    "the server of guardians has ended (%s), another is started",
                    self._server.bury(),
                )
        self._server = None
        self._server = Server()
        return self._server.fork(kind, descriptors)


class Kind(NamedTuple):
    """What all orders have in common that one guardian does."""

    command: list[bytes]
    user: tuple[int, int] | None
    limits: tuple[int, int] | None

    @classmethod
    def of(cls, order: Order) -> Kind:
        return cls(order.command, order.user, order.limits)


class Guardian:
    """One that was asked to do an order. Made by `Guardians.start`."""

    def __init__(self, kind: Kind, door: socket.socket, server: Server) -> None:
        self.kind = kind
        self.pid = 0  # its process id; whoever reads what it says sets it
        self._door = door
        self._server = server

    def ask(self, descriptors: Sequence[int]) -> bool:
        """Have it do another order. False when it has ended, or is to end. Raises `OSError`.

        It is to end without its server, who would end what it leaves when it is killed.
        """
        try:
            if not self._server.has_ended():
                hand_over(self._door, descriptors)
                return True
        except (BrokenPipeError, ConnectionResetError):
            pass  # it has waited for a minute, or was killed
        except BaseException:
            self.dismiss()
            raise
        self.dismiss()
        return False

    def dismiss(self) -> None:
        """Nobody asks it any more: it ends when it is done."""
        self._door.close()

    def give_up(self, name: str) -> None:
        """It does not do what it was asked for, for `name`: kill it, or who was to make it."""
        if not self.pid:
            logger.error("%s: the server of guardians does not answer and is killed", name)
            self._server.give_up()
            return
        logger.error("%s: its guardian does not end and is killed", name)
        try:
            pidfd = os.pidfd_open(self.pid)
        except OSError as fault:  # it has just ended, or there is no descriptor left
            logger.warning("%s: its guardian cannot be killed: %s", name, fault)
            return
        try:
            # It is no child of ours. While its door is open, its number is not another one's.
            if not is_closed(self._door.fileno()):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        finally:
            os.close(pidfd)


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
                    cwd="/",
                    pass_fds=[theirs.fileno()],
                )
        except BaseException:
            self._door.close()
            raise

    def fork(self, kind: Kind, descriptors: Sequence[int]) -> Guardian:
        """A new guardian, which begins. Raises `OSError`, `BrokenPipeError` when it has gone."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        try:
            with theirs:
                hand_over(self._door, [*descriptors, theirs.fileno()])
        except BaseException:
            ours.close()
            raise
        return Guardian(kind, ours, self)

    def has_ended(self) -> bool:
        return self._door.fileno() < 0 or is_closed(self._door.fileno())

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


def hand_over(door: socket.socket, descriptors: Sequence[int]) -> None:
    """A request. Raises `OSError`, `BrokenPipeError` when nobody receives it any more."""
    rights = array.array("i", descriptors)
    door.sendmsg([b"+"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])


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
        async with background(own.tails.follow):
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
