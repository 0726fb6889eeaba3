"""The program that guardians come from: a small process that forks itself for each of them.

The problem: what a guardian is for, it can only do as a process of its own, and to start a Python
takes longer than most workers that it guards.

The choice: one Python is started, which imports little, and waits. For each request on its socket
it forks, which takes a twentieth of a start; the fork becomes the guardian. It has one thread, no
lock, and nothing open but that socket, so a fork of it is as good as a new process. It knows
nothing of the daemon's: neither its environment nor its descriptors. What else a process has from
its parent (its umask, limits and priority) is what the daemon had when the server was started.

A guardian is then not the daemon's child, and the kernel does not tell the daemon of its end. The
end of the file that is its status pipe does (see `guarded.py`).

A request is one message with one byte and descriptors, which go to the fork as they are. They are
all that is known of it here: when there can be no fork, the first of them, a pipe, is told why. The
server ends when the other end of its socket is closed, by the kernel too. Guardians outlive it.
"""

from __future__ import annotations

import errno
import gc
import os
import sys

TYPE_CHECKING = False  # that of `typing` costs more than it is worth here
if TYPE_CHECKING:
    import signal
    import socket
    from collections.abc import Callable
else:
    # Without their enumerations, which take longer than the rest together.
    import _signal as signal
    import _socket as socket

MOST_DESCRIPTORS = 8
SIZE_OF_INT = 4
FIRST_OF_OTHERS = 3


def serve(door: int, work: Callable[[list[int]], None]) -> None:
    """Have a fork do `work` with the descriptors of each request, until there are no more."""
    # Nothing that is received is to have the number of a standard stream: the daemon may have been
    # started without one.
    while (number := os.open(os.devnull, os.O_RDWR)) < FIRST_OF_OTHERS:
        pass
    os.close(number)
    # Nothing that is aimed at the daemon's process group may end this one.
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel takes away who has died
    gc.disable()  # in each fork it would write to all that is shared with the others
    gc.freeze()
    asked = socket.socket(fileno=door)
    while (descriptors := receive(asked)) is not None:
        try:
            pid = os.fork()
        except OSError as fault:
            refuse(descriptors, f"failed {fault.errno} fork")
            pid = -1
        if pid == 0:
            asked.close()
            become(work, descriptors)
        for each in descriptors:
            os.close(each)


def receive(asked: socket.socket) -> list[int] | None:
    """The next request's descriptors; None when nobody asks any more."""
    size = socket.CMSG_SPACE(MOST_DESCRIPTORS * SIZE_OF_INT)
    while True:
        message, ancillary, flags, _ = asked.recvmsg(1, size, socket.MSG_CMSG_CLOEXEC)
        if not message:
            return None
        found = [each for _, _, rights in ancillary for each in memoryview(rights).cast("i")]
        if not flags & socket.MSG_CTRUNC:
            return found
        # This process may have no more descriptors, so some of them are lost.
        refuse(found, f"failed {errno.EMFILE} receive")
        for each in found:
            os.close(each)


def refuse(descriptors: list[int], why: str) -> None:
    for status in descriptors[:1]:
        try:
            os.write(status, f"{why}\n".encode())
        except OSError:
            return  # who asked has gone


def become(work: Callable[[list[int]], None], descriptors: list[int]) -> None:
    """Do it, and end: there is nothing to tidy up that the kernel does not."""
    try:
        work(descriptors)
    except BaseException:  # noqa: BLE001 - told as Python tells it
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(0)
