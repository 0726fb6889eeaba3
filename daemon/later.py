"""What the first answer does not need: imported once it can be given.

The problem: a start is nearly all imports, and a tenth of that is libraries that are not needed
before somebody logs in, sends a short link or is to be called. But what is imported when it is
first needed may not be to be had then: a package was replaced, or no descriptor is left to read it
by. And all others wait while it is read.

The choice: whoever needs one of these imports it in the function that does, and the daemon imports
all of them, on a thread, soon after it serves. What cannot be read then is tried again: a daemon
that has just started so many workers that it has no descriptor left need not end for that.
"""

from __future__ import annotations

import importlib
import logging
from typing import Final

import trio

from daemon.threads import NoThread, on_thread

logger = logging.getLogger(__name__)

MODULES: Final = (
    "cryptography.hazmat.primitives.ciphers.aead",
    "jwt",
    "pyotp",
    "daemon.crews.webhooks.sending",
    "daemon.marketplace.plain_client",
)
AFTER: Final = 1.0
"""Seconds. At once would be in the way of those who have waited for the start."""
AGAIN: Final = 30.0
"""Seconds until the next try."""


async def import_later() -> None:
    """Return when all of them are imported."""
    await trio.sleep(AFTER)
    while True:
        try:
            await on_thread(_import)
        except (ImportError, OSError, NoThread) as fault:
            logger.warning(
                "a part of the daemon cannot be read (%s); that is tried again in %g s, and if it "
                "goes on, install smartlinkd anew",
                fault,
                AGAIN,
            )
            await trio.sleep(AGAIN)
        else:
            return


def _import() -> None:
    for name in MODULES:
        importlib.import_module(name)
