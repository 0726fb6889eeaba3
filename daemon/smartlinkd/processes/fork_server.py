"""The program that guardians come from: a small process that forks itself for each of them.

The problem: what a guardian is for, it can only do as a process of its own, and to start a Python
takes longer than most workers that it guards.

The choice: one Python is started, which imports little, and waits. For each request on its socket
it forks, which takes a twentieth of a start; the fork becomes the guardian. It has one thread, no
lock, and nothing open but that socket and a pipe, so a fork of it is as good as a new process. It
knows nothing of the daemon's: neither its environment nor its descriptors. What else a process has
from its parent (its umask, limits and priority) is what the daemon had when the server was started.

A fork is not over when it has done its work: it has a socket of its own, through which it can be
asked to do more. For most of what a fork costs is not its start; it is the pages that it has to
copy as it writes to them, and to give back in the end.

A guardian is then not the daemon's child, and the kernel does not tell the daemon of its end. The
end of the file that is its status pipe does (see `guarded.py`).

Somebody may kill a guardian. What it guarded then becomes the server's own, who is told of each
death: whatever child it has that it did not fork is killed, one generation after the other.
Rejected: a parent-death signal, which reaches one process of the tree, and which only a fork could
ask for, so that the command's start would take longer (see `guardian.py`).

A request is one message with one byte and descriptors, which go to the fork as they are. Of the
server's own ones the last is the fork's socket. That is all that is known of them here, but for the
first, a pipe, which is told when there can be no fork, and why.

When the other end of its socket is closed, by the kernel too, the server ends as soon as all of its
guardians have: one of them may be on its way out, its pipes closed, but what it guarded not yet the
server's. It does not wait for long: a guardian does its work without it.
"""

from __future__ import annotations

import errno
import gc
import os
import select
import sys
import time

from .children import adopt, children, drain, kill, reap

TYPE_CHECKING = False  # that of `typing` costs more than it is worth here
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
else:
    # Without its enumerations, which take longer than the rest together.
    import _socket as socket

MOST_DESCRIPTORS = 8
SIZE_OF_INT = 4
FIRST_OF_OTHERS = 3
# A guardian gives its tree 5 s, and then removes a folder.
END_LIMIT = 10.0
LOOK_AGAIN_MS = 10
# Seconds that a fork waits for more to do.
IDLE_LIMIT = 60.0


def serve(door: int, work: Callable[[list[int], int], None]) -> None:
    """Have a fork do `work` with the descriptors of each request, until there are no more.

    It is given those, and one that is readable after a child's death.
    """
    # Nothing that is received is to have the number of a standard stream: the daemon may have been
    # started without one.
    while (number := os.open(os.devnull, os.O_RDWR)) < FIRST_OF_OTHERS:
        pass
    os.close(number)
    wake = adopt()
    gc.disable()  # in each fork it would write to all that is shared with the others
    gc.freeze()
    asked = socket.socket(fileno=door)
    poll = select.poll()
    poll.register(asked, select.POLLIN)
    poll.register(wake, select.POLLIN)
    forks: set[int] = set()
    asking = True
    while asking:
        ready = [descriptor for descriptor, _ in poll.poll()]
        if wake in ready:
            drain(wake)
            end_orphans(forks)
        if door in ready:
            descriptors = receive(asked)
            asking = descriptors is not None
            if descriptors and (pid := fork(work, descriptors, asked)) is not None:
                forks.add(pid)
    poll.unregister(asked)
    deadline = time.monotonic() + END_LIMIT
    while (end_orphans(forks) or forks) and time.monotonic() < deadline:
        if poll.poll(LOOK_AGAIN_MS):
            drain(wake)


def end_orphans(forks: set[int]) -> bool:
    """Kill what killed guardians have left to us, one generation a time; whether there was any."""
    forks.difference_update(reap()[0])
    try:
        orphans = set(children()) - forks
    except OSError:
        # There is no such list, and no guardian begins without; or there is no descriptor left.
        # What is not seen now is seen after the next death.
        return False
    kill(orphans)
    return bool(orphans)


def receive(asked: socket.socket) -> list[int] | None:
    """The next request's descriptors, none if it was refused; None when nobody asks any more."""
    size = socket.CMSG_SPACE(MOST_DESCRIPTORS * SIZE_OF_INT)
    message, ancillary, flags, _ = asked.recvmsg(1, size, socket.MSG_CMSG_CLOEXEC)
    if not message:
        return None
    found = [each for _, _, rights in ancillary for each in memoryview(rights).cast("i")]
    if not flags & socket.MSG_CTRUNC:
        return found
    # This process may have no more descriptors, so some of them are lost.
    refuse(found, f"failed {errno.EMFILE} receive")
    return []


def fork(
    work: Callable[[list[int], int], None], descriptors: list[int], asked: socket.socket
) -> int | None:
    """Have a fork do `work` with them; its process id, or None when there can be no fork."""
    try:
        pid = os.fork()
    except OSError as fault:
        refuse(descriptors, f"failed {fault.errno} fork")
        return None
    if pid == 0:
        asked.close()
        become(work, descriptors)
    for each in descriptors:
        os.close(each)
    return pid


def refuse(descriptors: list[int], why: str) -> None:
    """Tell whoever asked why, if there is a pipe for it, and let go of what was received."""
    for status in descriptors[:1]:
        try:
            os.write(status, f"{why}\n".encode())
        except OSError:
            break  # who asked has gone
    for each in descriptors:
        os.close(each)


def become(work: Callable[[list[int], int], None], descriptors: list[int]) -> None:
    """Do it, and then what else is asked of this one; and end.

    There is nothing to tidy up that the kernel does not.
    """
    try:
        try:
            wake = adopt()
        except OSError as fault:
            refuse(descriptors, f"failed {fault.errno} adopt")
            return
        request: list[int] | None
        *request, own = descriptors
        asked = socket.socket(fileno=own)
        while request is not None:
            if request:
                work(request, wake)
            request = receive_in_time(asked)
    except BaseException:  # noqa: BLE001 - told as Python tells it
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(0)


def receive_in_time(asked: socket.socket) -> list[int] | None:
    """As `receive`; None, too, when there is none for so long."""
    poll = select.poll()
    poll.register(asked, select.POLLIN)
    if not poll.poll(IDLE_LIMIT * 1000):
        # From now on the kernel refuses requests, and one that came just before is still received.
        asked.shutdown(socket.SHUT_RD)
    return receive(asked)
