"""What the first answer does not need: imported once it can be given.

The problem: a start is nearly all imports, and a tenth of that is libraries that are not needed
before somebody logs in, sends a short link or is to be called. But what is imported when it is
first needed may not be to be had then: a package was replaced, or no descriptor is left to read it
by. And all others wait while it is read.

The choice: the daemon imports all of them, on a thread, soon after it serves, and then nothing that
they do reads another one. What cannot be read is tried again: a daemon that has just started so
many workers that it has no descriptor left need not end for that. Whoever needs one imports it in
the function that does, and says so (`needed`): who comes before that, and finds that it cannot be
read, is refused like by any part that cannot do it now.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import trio

from smartlinkd.errors import Unavailable
from smartlinkd.threads import NoThread, on_thread

logger = logging.getLogger(__name__)

MODULES: Final = (
    "cryptography.hazmat.primitives.ciphers.aead",
    "jwt",
    # It tries whether a key is JSON, which guesses at an encoding by where there are zeros.
    *(f"encodings.utf_{each}" for each in ("16", "16_be", "16_le", "32", "32_be", "32_le")),
    "encodings.utf_8_sig",
    "pyotp",
    "httpx",
    "smartlinkd.net.egress",
)
AFTER: Final = 1.0
"""Seconds. At once would be in the way of those who have waited for the start."""
AGAIN: Final = 30.0
"""Seconds until the next try."""
RETRY_AFTER: Final = 5
"""Seconds, for who is refused meanwhile."""


def _unavailable(why: str) -> Unavailable:
    return Unavailable(why, retry_after=RETRY_AFTER)


@contextmanager
def needed(error: Callable[[str], Exception] = _unavailable) -> Iterator[None]:
    """For the import of one of these, where it is needed: that it cannot be read is no fault of who
    needs it. Raises `Unavailable`, or what `error` makes of the reason."""
    try:
        yield
    except (ImportError, OSError) as fault:
        logger.warning("a part of the daemon cannot be read (%s), and is needed", fault)
        raise error(
            "a part of the daemon cannot be read at the moment; try again shortly"
        ) from None


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
