"""Wrong sync keys and API keys are noticed: the tenth of an address within an hour is a warning.

The problem: a key opens the cookie, and whoever guesses at it, or has an old one, left no trace.
Nobody is to be refused for it: the key is too long to be guessed, and behind a proxy that tells no
addresses, or in one network with a stranger, a right key has to be good however many were wrong.

The choice: counts by address, as the throttle takes one, all forgotten when the hour is over. Those
beyond the first so many count as one, so that a flood from everywhere is neither a flood of records
nor a way to guess unseen.

Rejected: the throttle itself. It has a record for each address that inherits a count, which is one
for each request of whoever has many, and it forgets nothing but at a right password.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from math import inf
from typing import Final

from smartlinkd.auth.throttle import network_of
from smartlinkd.logs import LogEvent

logger = logging.getLogger(__name__)

NOTICED: Final = 10
WINDOW: Final = 3600.0
"""Seconds from the first wrong key on, after which all are forgotten."""
MAX_ADDRESSES: Final = 100
"""That have a count of their own; with one for all others, as many records in a window."""

_OTHERS: Final = "others"


class WrongKeys:
    """Counts them. `clock` is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._counts = Counter[str]()
        self._over_at = -inf

    def note(self, address: str) -> None:
        """One has come from there."""
        now = self._clock()
        if now >= self._over_at:
            self._counts.clear()
            self._over_at = now + WINDOW
        network = network_of(address)
        if network not in self._counts and len(self._counts) >= MAX_ADDRESSES:
            network = _OTHERS
        self._counts[network] += 1
        if self._counts[network] == NOTICED:
            whose = address if network != _OTHERS else f"many addresses, {address} the last of them"
            text = "%d wrong keys came within an hour from %s; nobody is refused for that"
            logger.warning(text, NOTICED, whose, extra=LogEvent.SYNC_KEY_GUESSED())
