"""The fork server: a small Python process that forks one reaper for each command.

The server has one thread, no lock, and of the daemon's only its standard error: no environment, no
other descriptor. It ends what a killed reaper leaves. Only the standard library is imported: the
program is run with `-I -S`, its socket is standard input. See docs/decisions/041-fork-server.md.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import time
from typing import Final

from smartlinkd.processes import reaper

MAX_DESCRIPTORS: Final = 8
END_LIMIT: Final = 10.0
"""Seconds that the server waits for its reapers when the daemon has gone. A reaper may be about to
end, and what it leaves behind is the server's to end."""


def serve() -> None:
    """Fork a reaper for each message on standard input, a SOCK_SEQPACKET socket, until it closes.

    A message carries the descriptors that `reaper.main` takes. A reaper is not the daemon's child,
    so the daemon learns of its end from its status pipe.
    """
    requests = take_socket()
    # Signals to our group must not end us. Blocked ones do not, and a command would inherit those
    # that are ignored, as Python and nohup ignore some.
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    wake = reaper.become_subreaper()
    gc.disable()  # in each fork it would write to all pages that are shared with the others
    gc.freeze()
    reapers: set[int] = set()
    poll = select.poll()
    poll.register(requests, select.POLLIN)
    poll.register(wake, select.POLLIN)
    is_open = True
    while is_open:
        ready = [descriptor for descriptor, _ in poll.poll()]
        if wake in ready:
            reaper.drain(wake)
            end_orphans(reapers)
        if requests.fileno() in ready:
            is_open = accept(requests, reapers)
    poll.unregister(requests)
    deadline = time.monotonic() + END_LIMIT
    while (end_orphans(reapers) or reapers) and time.monotonic() < deadline:
        if poll.poll(reaper.LOOK_AGAIN_MS):
            reaper.drain(wake)


def take_socket() -> socket.socket:
    """Return the socket that is standard input.

    From then on 0 to 3 are taken, so that no later descriptor gets the number of a command's stream
    or channel: the daemon may have been started without a standard error.
    """
    while (nothing := os.open(os.devnull, os.O_RDWR)) <= reaper.CHANNEL:
        pass
    requests = socket.socket(fileno=os.dup(0))
    os.dup2(nothing, 0, inheritable=False)
    os.close(nothing)
    return requests


def accept(requests: socket.socket, reapers: set[int]) -> bool:
    """Fork a reaper for the next message. Return False if the daemon has closed the socket."""
    message, descriptors, _, _ = socket.recv_fds(requests, 1, MAX_DESCRIPTORS)
    if not message:
        return False
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)  # recv_fds() ignores MSG_CMSG_CLOEXEC
    try:
        pid = os.fork()
    except OSError as error:
        reaper.report(descriptors[0], f"failed {error.errno} fork")
    else:
        if pid == 0:
            requests.close()
            try:
                reaper.main(descriptors)
            finally:
                os._exit(0)  # its status pipe has told how it went
        reapers.add(pid)
    for descriptor in descriptors:
        os.close(descriptor)
    return True


def end_orphans(reapers: set[int]) -> bool:
    """Kill what killed reapers have left to us, one generation. Return True if there was any."""
    reapers.difference_update(reaper.reap()[0])
    try:
        orphans = set(reaper.children()) - reapers
    except OSError:
        return False  # the kernel has no list, so nothing was started; or no descriptor is left
    reaper.kill(orphans)
    return bool(orphans)
