"""The socket for notifications to systemd, sd_notify(3).

A message is one datagram of `NAME=value` lines, if need be with a descriptor. The event loop sends
it, so sending never waits, and it never fails: the daemon works without systemd as well.
See docs/decisions/012-notifying-systemd.md.
"""

from __future__ import annotations

import array
import errno
import logging
import socket
import weakref

from smartlinkd.untrusted import blank_unprintable

logger = logging.getLogger(__name__)

MAX_STATUS_CHARS = 1000

_ABSTRACT = "@"
# systemd is slow, or is just being replaced (`systemctl daemon-reexec`).
_TEMPORARY = {errno.EAGAIN, errno.ECONNREFUSED, errno.ENOBUFS, errno.ENOMEM}
_NO_ERROR = -1


class NotifySocket:
    """Sends notifications.

    Args:
        address: $NOTIFY_SOCKET, a path or "@" with an abstract name. If "", nothing is sent.
    """

    def __init__(self, address: str) -> None:
        self._address = f"\0{address[1:]}" if address.startswith(_ABSTRACT) else address
        self._socket: socket.socket | None = None
        self._logged_errno = _NO_ERROR  # of the last failure, until a message is sent

    @property
    def has_address(self) -> bool:
        """True if there is a service manager to notify."""
        return bool(self._address)

    def send(self, *lines: str, descriptor: int | None = None) -> bool:
        """Send one message of `NAME=value` lines. Return True if it was sent."""
        if not self.has_address:
            return False
        rights = []
        if descriptor is not None:
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))]
        flags = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
        try:
            ours = self._socket or self._open()
            # Addressed anew each time, so that a replaced systemd is found again.
            ours.sendmsg(["\n".join(lines).encode()], rights, flags, self._address)
        except OSError as error:
            self._log_failure(error)
            return False
        self._logged_errno = _NO_ERROR
        return True

    def send_status(self, line: str) -> bool:
        """Send the line that `systemctl status` shows. Return True if it was sent."""
        return self.send(f"STATUS={blank_unprintable(line)[:MAX_STATUS_CHARS]}")

    def _open(self) -> socket.socket:
        # Kept open: a daemon without a free descriptor still has to send its pings.
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        weakref.finalize(self, self._socket.close)
        return self._socket

    def _log_failure(self, error: OSError) -> None:
        """Log a failure once: the next attempts mostly fail in the same way."""
        number = error.errno or 0  # a path that is too long for an address has no errno
        if number != self._logged_errno:
            self._logged_errno = number
            level = logging.INFO if number in _TEMPORARY else logging.WARNING
            logger.log(level, "the service manager cannot be told anything: %s", error)
