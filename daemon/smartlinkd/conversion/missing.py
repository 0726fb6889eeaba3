"""That links are wanted and there is no cookie to make them with, and the one place that says so.

A reboot forgets the cookie, as a stop does. Each order is refused from then on: its client is told,
but the client is a program, and no account is in trouble. So the owner is told with the first order
that is refused, and again when a cookie was synced. While nobody wants links there is nothing to
tell: a daemon that was just installed has no cookie either.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from smartlinkd.logs import LogEvent

logger = logging.getLogger(__name__)

TellMissing = Callable[[bool], None]
"""Called with True when links are wanted without a cookie, with False when there is one."""


class MissingCookie:
    """The alarm that links are wanted and no cookie is stored. It outlives the desk's instances.

    A stored cookie is only ever replaced. So once one was stored, a report that none is stored was
    made before that, and is ignored.
    """

    def __init__(self, tell: TellMissing | None) -> None:
        self._tell = tell
        self._missing = False
        self._synced = False

    def noticed(self) -> None:
        """An order was refused because no cookie is stored."""
        if not (self._missing or self._synced):
            text = "links are wanted, and no cookie is stored to make them with: sync one"
            logger.warning(text, extra=LogEvent.COOKIE_MISSING())
            self._change(missing=True)

    def synced(self) -> None:
        """A cookie was stored."""
        self._synced = True
        if self._missing:
            logger.warning("there is a cookie again", extra=LogEvent.COOKIE_BACK())
            self._change(missing=False)

    def _change(self, *, missing: bool) -> None:
        self._missing = missing
        if self._tell is not None:
            self._tell(missing)
