"""The cookie in systemd's file descriptor store (systemd.io/FILE_DESCRIPTOR_STORE).

The vault's memory ends with the process. systemd keeps the descriptor of a sealed memfd with the
cookie until the unit is stopped, and passes it to the next process. Each change is a new memfd
under a new name, `cookie-1`, `cookie-2` and so on. See docs/decisions/013-fd-store.md.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Sequence
from operator import itemgetter

from smartlinkd.logs import LogEvent
from smartlinkd.systemd.environment import Descriptor
from smartlinkd.systemd.notify_socket import NotifySocket
from smartlinkd.vault.record import CookieRecord, read_record, sealed_record

logger = logging.getLogger(__name__)

_NAME = re.compile(r"cookie-([0-9]{1,18})")


class FdStore:
    """Keeps the newest record in the store, and no other.

    Args:
        found: the cookies that systemd passed.
    """

    def __init__(self, notify_socket: NotifySocket, found: Sequence[Descriptor]) -> None:
        self._notify_socket = notify_socket
        self._found = found
        self._serial = 0
        self._unsent: Descriptor | None = None
        self._stored = ""
        self._outdated: list[str] = []

    @property
    def is_kept(self) -> bool:
        """True if systemd has the newest record."""
        return bool(self._stored) and self._unsent is None

    def restore(self) -> CookieRecord | None:
        """Return the newest valid record that systemd passed, and close all that it passed.

        They leave the store when the record is in it again, under a new name.
        """
        record = None
        for serial, each in _newest_first(self._found):
            self._serial = max(self._serial, serial)
            record = record or read_record(each.number)
            if record is None:
                logger.error("the stored cookie %s is refused: there is no cookie in it", each.name)
            os.close(each.number)
            self._outdated.append(each.name)
        self._found = ()
        if record is None:
            self.send_pending()  # removes all of them
        else:
            synced = record.synced_at.isoformat(timespec="seconds")
            text = "the cookie synced at %s is here again, kept by the service manager"
            logger.info(text, synced, extra=LogEvent.COOKIE_RESTORED())
            self.keep(record)
        return record

    def keep(self, record: CookieRecord) -> None:
        """Store this record instead of the last one."""
        if not self._notify_socket.has_address:
            return
        self._close_unsent()
        self._serial += 1
        try:
            self._unsent = Descriptor(f"cookie-{self._serial}", sealed_record(record))
        except OSError as error:
            logger.warning("the cookie will not outlive the daemon: %s", error.strerror)
            self._outdate_stored()
        self.send_pending()

    def send_pending(self) -> None:
        """Send what systemd has not been sent yet: the newest record first, then removals."""
        if self._unsent is not None:
            name = self._unsent.name
            # FDPOLL=0: systemd would drop the descriptor after a hang-up.
            fields = ("FDSTORE=1", f"FDNAME={name}", "FDPOLL=0")
            if not self._notify_socket.send(*fields, descriptor=self._unsent.number):
                return
            self._close_unsent()
            self._outdate_stored()
            self._stored = name
            logger.info("the service manager keeps the cookie", extra=LogEvent.COOKIE_KEPT())
        while self._outdated and remove_from_store(self._notify_socket, self._outdated[0]):
            del self._outdated[0]

    def _outdate_stored(self) -> None:
        if self._stored:
            self._outdated.append(self._stored)
        self._stored = ""

    def _close_unsent(self) -> None:
        if self._unsent is not None:
            os.close(self._unsent.number)
            self._unsent = None


def is_cookie_name(name: str) -> bool:
    """Return True if the store holds cookies under names like this."""
    return _NAME.fullmatch(name) is not None


def remove_from_store(notify_socket: NotifySocket, name: str) -> bool:
    """Have systemd close what it stores under this name. Return True if the request was sent."""
    return notify_socket.send("FDSTOREREMOVE=1", f"FDNAME={name}")


def _newest_first(found: Sequence[Descriptor]) -> list[tuple[int, Descriptor]]:
    numbered = [(int(each.name.rpartition("-")[2]), each) for each in found]
    return sorted(numbered, key=itemgetter(0), reverse=True)
