"""How long a question waits for a part of the daemon that is not there at the moment.

The problem: a mailbox keeps its questions while its actor is being restarted, and after a few
crashes in a row that is half a minute. Clients were promised a 503 and come again by themselves.
The choice: what is answered at once when all is well is asked under this one deadline, by the
facade and by the control socket. It is long enough for the first restarts of an actor, so that a
single crash is not noticed.
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
def patience(seconds: float = PATIENCE) -> Iterator[None]:
    """Ask in the body. Raises `Unavailable` when there is no answer within `seconds`."""
    with trio.move_on_after(seconds) as scope:
        yield
    if scope.cancelled_caught:
        raise Unavailable(
            "a part of the daemon is being restarted; try again in a few seconds", retry_after=5
        )
