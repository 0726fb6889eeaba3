"""The deadline for calls to actors that normally answer at once.

A mailbox keeps its calls while its actor restarts, which takes half a minute after a few crashes in
a row. Clients are promised a 503 instead, and try again. The deadline is long enough for the first
restarts, so a single crash is not noticed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import trio

from smartlinkd.errors import Unavailable

ACTOR_TIMEOUT_S: Final = 8.0
"""The waits before an actor's first four restarts add up to 7.5 s."""


@contextmanager
def actor_deadline(seconds: float = ACTOR_TIMEOUT_S) -> Iterator[None]:
    """Cancel the block after `seconds`. Raises `Unavailable` if it was not done by then."""
    with trio.move_on_after(seconds) as scope:
        yield
    if scope.cancelled_caught:
        raise Unavailable(
            "a part of the daemon is being restarted, or waits for the disk; "
            "try again in a few seconds",
            retry_after=5,
        )
