"""Whether Chromium can be kept up at all, as far as its last ends tell.

One that ends is an everyday event and is started again. When it ends again and again, or does not
start, that goes on for as long as the daemon lives, with waits in between; but the owner should
know. The count outlives the instances of the browser's actor.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from smartlinkd.logs import LogEvent

logger = logging.getLogger(__name__)

TOO_MANY: Final = 5
"""Ends in a row, each before a healthy time was over, after which it counts as one that cannot be
kept up. With the waits between them that is a quarter of a minute at least."""

TellDown = Callable[[str | None], None]
"""Called with why Chromium cannot be kept up, or with None when it can be again."""


class Upkeep:
    """Counts ends in a row; says once that there are too many, and once that it is over."""

    def __init__(self, tell: TellDown) -> None:
        self.failures = 0
        self._tell = tell
        self._is_down = False

    def failed(self, why: str, *, another_serves: bool) -> None:
        """A Chromium ended early, or did not start. Where another one still serves, its owner has
        nothing to see to yet."""
        self.failures += 1
        if self.failures >= TOO_MANY and not self._is_down and not another_serves:
            self._is_down = True
            text = "Chromium cannot be kept up: it ended %d times in a row, the last time by: %s"
            logger.error(text, self.failures, why, extra=LogEvent.BROWSER_DOWN())
            self._tell(why)

    def steady(self) -> None:
        """One has been up for a healthy time."""
        self.failures = 0
        if self._is_down:
            self._is_down = False
            logger.warning("Chromium stays up again", extra=LogEvent.BROWSER_BACK())
            self._tell(None)
