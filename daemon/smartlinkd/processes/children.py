"""A process's children, as the kernel lists them: taken in, known when one dies, reaped, killed.

The problem: whoever answers for all that is below it (a guardian for its command, the server of
guardians for what a killed one leaves) has to know of processes that it did not start.

The choice: it is their subreaper, so whatever below it loses its parent becomes its own child; it
is told of deaths through a pipe; and the kernel's own list says who is there.

Like `fork_server.py` and `guardian.py` it imports nothing of the daemon's, and little else. Those
are run as a package `processes`, so what they import from it has a relative name.
"""

from __future__ import annotations

import ctypes
import os

TYPE_CHECKING = False  # that of `typing` costs more than it is worth here
if TYPE_CHECKING:
    import signal
    from collections.abc import Iterable
else:
    # All that is needed of it, without its enumerations, which take longer than the rest together.
    import _signal as signal

LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_CHILD_SUBREAPER = 36
CHILDREN = "/proc/thread-self/children"


def adopt() -> int:
    """Take all that is below under this process. A descriptor that is readable after a death."""
    # Blocked, not ignored: nothing that is aimed at our group may end us, and a command must not
    # inherit a signal that is ignored.
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    wake, waker = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(waker, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    return wake


def drain(wake: int) -> None:
    """To be done before the dead are looked for: who dies afterwards makes it readable again."""
    os.read(wake, 4096)


def prctl(option: int, value: int) -> None:
    """prctl(2). Raises `OSError`."""
    if LIBC.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl", "prctl")


def children(listing_of: str = CHILDREN) -> list[int]:
    """Ours, or those of another's thread. Raises `OSError` where the kernel has no such list."""
    return [int(pid) for pid in read_all(os.open(listing_of, os.O_RDONLY)).split()]


def read_all(descriptor: int) -> bytes:
    """To its end; it is closed. A file object would cost seven system calls more."""
    found = b""
    try:
        while data := os.read(descriptor, 65536):
            found += data
    finally:
        os.close(descriptor)
    return found


def reap() -> tuple[dict[int, int], bool]:
    """The wait status of each child that has died, and whether any child is left."""
    dead: dict[int, int] = {}
    try:
        while True:
            pid, waitstatus = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return dead, True
            dead[pid] = waitstatus
    except ChildProcessError:
        return dead, False


def kill(those: Iterable[int]) -> None:
    """SIGKILL to children of ours, which have their numbers until we reap them."""
    for pid in those:
        try:
            os.kill(pid, signal.SIGKILL)
        except PermissionError:
            continue  # another's by now; whoever asked looks again at who is left
