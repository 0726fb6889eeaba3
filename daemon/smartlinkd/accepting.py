"""Accepting connections on a machine, or in a process, that has nothing left to accept one with.

The problem: accept(2) fails then, and that passes. Whoever ends by it needs descriptors to begin
again, which there are even fewer of, and a part that cannot be kept up ends the daemon. Trio's
`serve_listeners` waits, but logs each of its ten tries a second, with a traceback.

The choice: a listener that waits as trio does, for all who accept. It says so once, until it was
well for a while: each connection that ends lets one more in. Who wants to connect waits in the
kernel's queue.
"""

from __future__ import annotations

import errno
import logging
from math import inf
from typing import Final

import trio

logger = logging.getLogger(__name__)

TRY_EVERY: Final = 0.1
"""Seconds between two tries while there is nothing left."""
WELL_AFTER: Final = 60.0
"""Seconds without a try that failed, after which the next one is told again."""

_NOTHING_LEFT: Final = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class PatientListener(trio.abc.Listener[trio.SocketStream]):
    """That of `listening`, which goes with it."""

    def __init__(self, listening: trio.SocketListener) -> None:
        self._listening = listening
        self._failed_at = -inf  # on trio's clock

    async def accept(self) -> trio.SocketStream:
        """The next connection, however long there is nothing left for it."""
        while True:
            try:
                return await self._listening.accept()
            except OSError as fault:
                if fault.errno not in _NOTHING_LEFT:
                    raise
                self._note(fault)
            await trio.sleep(TRY_EVERY)

    async def aclose(self) -> None:
        """Close it, and what it listens at."""
        await self._listening.aclose()

    def _note(self, fault: OSError) -> None:
        now = trio.current_time()
        if now - self._failed_at > WELL_AFTER:
            logger.error("no connection can be accepted, which is tried again and again: %s", fault)
        self._failed_at = now
