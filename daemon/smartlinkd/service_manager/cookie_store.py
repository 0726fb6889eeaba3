"""The cookie in the manager's file descriptor store, see systemd's FILE_DESCRIPTOR_STORE.

The vault keeps the cookie in a sealed memfd and nowhere else, so with the process it would be gone.
systemd keeps descriptors that it is sent for as long as the unit is not stopped, and gives them to
the next process: after a restart, a crash, a strike of the watchdog. `systemctl stop` lets go of
them, and with the last descriptor the kernel forgets the content.

Every change is a new memfd under a new name, `cookie-1`, `cookie-2` and so on: one name for all
would not do, because names are what descriptors are removed by, and the new one has to be in before
the old one is out. What comes back at the start is read, checked and written to a memfd of our own
making, which goes to the store like every change; only then what came is removed there.

What cannot be sent now (the manager's queue is full) is tried again by `retry`, newest first.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Sequence
from operator import itemgetter

from smartlinkd.logs import Event
from smartlinkd.service_manager.given import Descriptor
from smartlinkd.service_manager.messenger import Messenger
from smartlinkd.vault.record import CookieRecord, InvalidRecord, read_record

logger = logging.getLogger(__name__)

_NAME = re.compile(r"cookie-([0-9]{1,18})")


class CookieStore:
    """The vault's `DescriptorStore`: the manager's store has the newest record and no other."""

    def __init__(self, messenger: Messenger, found: Sequence[Descriptor]) -> None:
        """`found` is what the store gave back."""
        self._messenger = messenger
        self._found = found
        self._serial = 0
        self._waiting: Descriptor | None = None  # a duplicate of ours, until it is sent
        self._stored = ""
        self._outdated: list[str] = []

    @property
    def kept(self) -> bool:
        """Whether the manager has been given the newest record."""
        return bool(self._stored) and self._waiting is None

    def take_back(self) -> CookieRecord | None:
        """The newest record that is sound among what the store gave back. Closes all of it.

        It leaves the store when the next one is in: give the record to the vault.
        """
        record = None
        for serial, each in _newest_first(self._found):
            self._serial = max(self._serial, serial)
            try:
                record = record or read_record(each.number)
            except InvalidRecord as fault:
                text = "the stored cookie %s is refused: %s"
                logger.error(text, each.name, fault)  # noqa: TRY400 - the text is the whole of it
            finally:
                os.close(each.number)
            if each.name not in self._outdated:
                self._outdated.append(each.name)
        self._found = ()
        if record is None:
            self.retry()  # nothing of it is worth keeping
        else:
            synced = record.synced_at.isoformat(timespec="seconds")
            text = "the cookie synced at %s is here again, kept by the service manager"
            logger.info(text, synced, extra=Event.COOKIE_RESTORED())
        return record

    def keep(self, descriptor: int) -> None:
        """Have the manager keep this one from now on. The caller may close it afterwards."""
        if not self._messenger:
            return
        self._let_go()
        self._serial += 1
        try:
            self._waiting = Descriptor(f"cookie-{self._serial}", os.dup(descriptor))
        except OSError as error:
            logger.warning("the cookie will not outlive the daemon: %s", error.strerror)
            self._outdated += [self._stored] if self._stored else []
            self._stored = ""
        self.retry()

    def retry(self) -> None:
        """Send what could not be sent before, if there is any."""
        if self._waiting is not None:
            name = self._waiting.name
            # FDPOLL=0: it is not to be watched for a hang-up, after which it would be dropped.
            store = ("FDSTORE=1", f"FDNAME={name}", "FDPOLL=0")
            if not self._messenger.send(*store, descriptor=self._waiting.number):
                return
            self._let_go()
            self._outdated += [self._stored] if self._stored else []
            self._stored = name
            logger.info("the service manager keeps the cookie", extra=Event.COOKIE_KEPT())
        while self._outdated and forget(self._messenger, self._outdated[0]):
            del self._outdated[0]

    def _let_go(self) -> None:
        if self._waiting is not None:
            os.close(self._waiting.number)
            self._waiting = None


def is_cookie(name: str) -> bool:
    """Whether the store has a cookie under this name."""
    return _NAME.fullmatch(name) is not None


def forget(messenger: Messenger, name: str) -> bool:
    """Have the manager close what it keeps under this name; whether it was told."""
    return messenger.send("FDSTOREREMOVE=1", f"FDNAME={name}")


def _newest_first(found: Sequence[Descriptor]) -> list[tuple[int, Descriptor]]:
    numbered = [(int(each.name.rpartition("-")[2]), each) for each in found]
    return sorted(numbered, key=itemgetter(0), reverse=True)
