"""What the daemon tells its service manager: systemd's notification protocol, see sd_notify(3).

A message is one datagram of `NAME=value` lines, with a descriptor beside it where one is to be
kept, to the socket that $NOTIFY_SOCKET names. It is sent from the daemon's own loop, so it must
never wait; and it is a courtesy, so it must never fail. What could not be sent is a False, and who
sent it decides whether to try again.

Rejected: libsystemd's bindings, which need its headers to be built; and the small packages in pure
Python, `sdnotify` and `systemd-watchdog`: both wait where the manager's queue is full, and neither
sends descriptors.
"""

from __future__ import annotations

import array
import errno
import logging
import socket
import weakref

from smartlinkd.printable import blanked

logger = logging.getLogger(__name__)

LONGEST_STATUS = 1000
"""Characters; a line of `systemctl status`."""

_ABSTRACT = "@"
# The manager is slow, or just being replaced by a new one of itself: it will be there again.
_FOR_NOW = {errno.EAGAIN, errno.ECONNREFUSED, errno.ENOBUFS, errno.ENOMEM}
_NO_MATTER = -1


class Messenger:
    """The sending end. Without an address it is False, and sends nothing."""

    def __init__(self, address: str) -> None:
        """`address` is $NOTIFY_SOCKET: a path, or "@" and an abstract name; empty when there is
        no service manager."""
        self._address = f"\0{address[1:]}" if address.startswith(_ABSTRACT) else address
        self._ours: socket.socket | None = None
        self._logged = _NO_MATTER  # the errno of the last failure, while it lasts

    def __bool__(self) -> bool:
        return bool(self._address)

    def send(self, *lines: str, descriptor: int | None = None) -> bool:
        """Send one message of `NAME=value` lines; whether it is on its way."""
        if not self:
            return False
        kept = [] if descriptor is None else [descriptor]
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", kept))] if kept else []
        flags = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
        try:
            ours = self._ours or self._open()
            ours.sendmsg(["\n".join(lines).encode()], rights, flags, self._address)
        except OSError as error:
            self._tell(error)
            return False
        self._logged = _NO_MATTER
        return True

    def _open(self) -> socket.socket:
        """Once: a daemon that has no descriptor left is well, and has to say so. Each message is
        addressed anew, so that a manager which is replaced is found again."""
        self._ours = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        weakref.finalize(self, self._ours.close)
        return self._ours

    def status(self, line: str) -> bool:
        """Send how the daemon is, in one line for people; whether it is on its way."""
        return self.send(f"STATUS={blanked(line)[:LONGEST_STATUS]}")

    def _tell(self, error: OSError) -> None:
        """Once: the next tries mostly fail in the same way."""
        number = error.errno or 0  # none is there for a path that is too long for an address
        if number != self._logged:
            self._logged = number
            level = logging.INFO if number in _FOR_NOW else logging.WARNING
            logger.log(level, "the service manager cannot be told anything: %s", error)
