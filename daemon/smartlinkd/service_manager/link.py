"""The daemon's end of its connection to the service manager: what it was given, what it has said.

One for the life of the process. Its words are sent at once; those that must arrive, and could not
be sent, are sent by `retry` in the order they were said. All of it may be called at any time, by
anybody, with or without a service manager.
"""

from __future__ import annotations

import logging
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

from smartlinkd.nurseries import describe
from smartlinkd.service_manager.cookie_store import CookieStore, forget, is_cookie
from smartlinkd.service_manager.given import Descriptor, Given
from smartlinkd.service_manager.messenger import Messenger
from smartlinkd.service_manager.sockets import NAMES, Sockets, sockets_among

logger = logging.getLogger(__name__)


class Link:
    """What was given is in `watchdog` (seconds, or None), `sockets` and `cookies`, each for one to
    take. Descriptors of no use are closed here, and no longer kept by the manager."""

    def __init__(self, given: Given) -> None:
        self._messenger = Messenger(given.notify_socket)
        self._owed: list[str] = []
        self._status = ""
        self.starting = True
        self.watchdog = given.watchdog if self._messenger else None
        cookies = [each for each in given.descriptors if is_cookie(each.name)]
        self.cookies = CookieStore(self._messenger, cookies)
        self.sockets: Sockets = sockets_among(given.descriptors)
        known = {*cookies, *self.sockets.main, *chain(*self.sockets.crews.values())}
        for each in given.descriptors:
            if each not in known:
                self._drop(each)

    def __bool__(self) -> bool:
        """Whether there is a service manager that wants to be told."""
        return bool(self._messenger)

    def ready(self) -> None:
        """All has started, or has taken up a changed configuration."""
        self.starting = False
        self._say("READY=1")

    @contextmanager
    def reloading(self) -> Iterator[None]:
        """In the body, a changed configuration is taken up, or refused."""
        self._say(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
        try:
            yield
        finally:
            self.ready()

    def stopping(self) -> None:
        """It has begun to end."""
        self._say("STOPPING=1")

    def extend(self, seconds: float) -> None:
        """What is under way takes up to `seconds` more; or more again, when this is said again."""
        self._messenger.send(f"EXTEND_TIMEOUT_USEC={round(seconds * 1e6)}")

    def alive(self) -> None:
        """Every part has just shown that it works."""
        self._messenger.send("WATCHDOG=1")

    def status(self, line: str) -> None:
        """How it is, in one line for people. Sent when it is another than the last one."""
        if line != self._status and self._messenger.status(line):
            self._status = line

    def retry(self) -> None:
        """Send what has to arrive and could not be sent before."""
        while self._owed and self._messenger.send(self._owed[0]):
            del self._owed[0]
        self.cookies.retry()

    @contextmanager
    def telling_why(self) -> Iterator[None]:
        """Around the whole daemon: what ended it is the last thing that is shown of it."""
        try:
            yield
        except Exception as error:
            self.status(f"Ended: {describe(error)}")
            raise

    def _say(self, message: str) -> None:
        if self:
            self._owed.append(message)
            self.retry()

    def _drop(self, unknown: Descriptor) -> None:
        name = unknown.name
        if stat.S_ISSOCK(os.fstat(unknown.number).st_mode):
            text = "nobody is served at the service manager's socket %r: its unit needs %s"
            logger.error(text, name, NAMES)
        else:
            text = "a descriptor of the service manager is of no use here, closed: %r"
            logger.warning(text, name)
        os.close(unknown.number)
        if name.isprintable():
            forget(self._messenger, name)
