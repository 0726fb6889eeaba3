"""How long a question waits for a part of the daemon that is not there at the moment.

The problem: a mailbox keeps its questions while its actor is being restarted, and after a few
crashes in a row that is half a minute. Clients were promised a 503 and come again by themselves.
The choice: questions that are answered at once when all is well are asked under this one deadline.
It is long enough for the first restarts of an actor, so that a single crash is not noticed.

Conversions are not asked under it: they take long when all is well, and the desk keeps their time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import trio

from daemon.errors import Unavailable

PATIENCE = 8.0
"""Seconds. The waits before the first four restarts of an actor come to 7.5; the owner's shell,
which asks through here too, itself waits 10."""


@contextmanager
def patience() -> Iterator[None]:
    """Ask in the body. Raises `Unavailable` when there is no answer within `PATIENCE` seconds."""
    with trio.move_on_after(PATIENCE) as scope:
        yield
    if scope.cancelled_caught:
        raise Unavailable(
            "a part of the daemon is being restarted; try again in a few seconds", retry_after=5
        )
