"""A listener that outlives a shortage of descriptors or memory.

accept(2) fails then, and the shortage passes. An actor that ended by it would need descriptors to
start again. trio's `serve_listeners` waits too, but logs each of ten tries a second with a
traceback. Clients wait in the kernel's queue meanwhile.
"""

from __future__ import annotations

import errno
import logging
from math import inf
from typing import Final

import trio

logger = logging.getLogger(__name__)

RETRY_INTERVAL_S: Final = 0.1
LOG_INTERVAL_S: Final = 60.0
"""Seconds without a failure after which the next one is logged again."""

_SHORTAGES: Final = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class PatientListener(trio.abc.Listener[trio.SocketStream]):
    """A listener over `listening`, which it owns."""

    def __init__(self, listening: trio.SocketListener) -> None:
        self._listening = listening
        self._failed_at = -inf  # on trio's clock

    async def accept(self) -> trio.SocketStream:
        """Return the next connection, however long a shortage lasts."""
        while True:
            try:
                return await self._listening.accept()
            except OSError as fault:
                if fault.errno not in _SHORTAGES:
                    raise
                self._log_once(fault)
            await trio.sleep(RETRY_INTERVAL_S)

    async def aclose(self) -> None:
        """Close the listening socket."""
        await self._listening.aclose()

    def _log_once(self, fault: OSError) -> None:
        now = trio.current_time()
        if now - self._failed_at > LOG_INTERVAL_S:
            logger.error("no connection can be accepted, which is tried again and again: %s", fault)
        self._failed_at = now
