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
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Final

import trio

from smartlinkd.nurseries import describe, sole_error
from smartlinkd.operator import StatusReport
from smartlinkd.supervision.child import ChildSnapshot
from smartlinkd.supervision.supervisor import Supervisor
from smartlinkd.systemd.environment import Descriptor, Given
from smartlinkd.systemd.fd_store import CookieStore, forget, is_cookie
from smartlinkd.systemd.notify_socket import Messenger
from smartlinkd.systemd.sockets import NAMES, Sockets, sockets_among
from smartlinkd.systemd.status_line import ending_line, status_line
from smartlinkd.systemd.watchdog import Watchdog

logger = logging.getLogger(__name__)

LOOK_EVERY: Final = 1.0
"""Seconds between two looks at how the daemon is: as often as its line may change."""
EXTENSION: Final = 10.0
"""Seconds that are asked for at a time while it starts or stops; should it hang then, it is these
that the manager waits in vain."""
EXTEND_EVERY: Final = 2.0
GRACE: Final = 1.0
"""Seconds for its own end, which takes no time."""
MARGIN: Final = 5.0
"""Seconds beyond all graces, for what is cancelled then to end."""


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


class Reporter:
    """One instance is `run`."""

    def __init__(
        self,
        link: Link,
        *,
        status: Callable[[], Awaitable[StatusReport]],
        parts: Callable[[], Sequence[ChildSnapshot]],
        whole: Callable[[], Supervisor],
    ) -> None:
        """`whole` gives the supervisor of everything, this included: it is made after this."""
        self._link = link
        self._status = status
        self._parts = parts
        self._whole = whole
        self._stop = trio.Event()

    def stop(self) -> None:
        """All others have ended."""
        self._stop.set()

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """Report until stopped."""
        self._stop = trio.Event()
        whole = self._whole()
        async with sole_error(), trio.open_nursery() as nursery:
            if self._link.watchdog is not None:
                nursery.start_soon(
                    self._watch, Watchdog(whole.watched_loops, within=self._link.watchdog)
                )
            task_status.started()
            async with sole_error(), trio.open_nursery() as until_the_end:
                until_the_end.start_soon(self._tell_status)
                await whole.wait_ending()
                until_the_end.cancel_scope.cancel()
            await self._tell_the_end(longest=whole.longest_end + MARGIN)
            nursery.cancel_scope.cancel()

    async def _watch(self, watchdog: Watchdog) -> None:
        with watchdog.awake() as turn:
            while True:
                turn()
                if watchdog.look():
                    self._link.alive()
                await trio.sleep(watchdog.every)

    async def _tell_status(self) -> None:
        while True:
            self._link.retry()
            if self._link.starting:  # which the supervisor bounds, part by part
                self._link.extend(EXTENSION)
            try:
                self._link.status(status_line(await self._status()))
            except Exception:  # a bug in what is told is no reason to end what it tells of
                logger.exception("the service manager cannot be told how things are")
            await trio.sleep(LOOK_EVERY)

    async def _tell_the_end(self, *, longest: float) -> None:
        self._link.stopping()
        until = trio.current_time() + longest
        while not self._stop.is_set():
            self._link.retry()
            self._link.status(ending_line(self._parts()))
            if trio.current_time() < until:
                self._link.extend(EXTENSION)
            with trio.move_on_after(EXTEND_EVERY):
                await self._stop.wait()
