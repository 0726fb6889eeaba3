"""Human checks that the portal's tabs have shown, until the desk has heard of them.

The problem: a check may be shown to a tab at which nobody is at work, after the last links were
made, say. Whoever is the next to use the tab would see it; but until then the tab may be closed, to
make room or since it was idle, and Chromium may end.

The choice: whoever watches a tab notes the cookie here in that moment, and the desk pauses its
account as soon as it runs. A check that some work meets as well is the same one: to pause an
account twice is to pause it once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import trio

from smartlinkd.vault.cookie import Cookie


class Sightings:
    """With which cookies a check was seen. Holds each once, and for as long as the desk is away."""

    def __init__(self) -> None:
        self._unheard: dict[str, Cookie] = {}
        self._wake = trio.Event()

    def saw(self, cookie: Cookie) -> None:
        """A tab of this cookie's session shows a human check. Does not wait."""
        self._unheard[cookie.digest] = cookie
        self._wake.set()

    async def hear(self, pause: Callable[[Cookie], None]) -> NoReturn:
        """Call `pause` for each, as it is seen. Runs until cancelled."""
        while True:
            self._wake = trio.Event()
            for cookie in tuple(self._unheard.values()):
                pause(cookie)
                del self._unheard[cookie.digest]
            await self._wake.wait()
