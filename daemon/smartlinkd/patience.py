"""How long a question waits for a part of the daemon that does not answer at the moment.

The problem: a mailbox keeps its questions while its actor is being restarted, and after a few
crashes in a row that is half a minute. Clients were promised a 503 and come again by themselves.
The choice: what is answered at once when all is well is asked under this one deadline, by the
facade and by the control socket. It is long enough for the first restarts of an actor, so that a
single crash is not noticed.
"""

from __future__ import annotations

from types import TracebackType

import trio

from smartlinkd.errors import Unavailable

PATIENCE = 8.0
"""Seconds. The waits before the first four restarts of an actor come to 7.5; the owner's shell,
which asks through here too, itself waits 10."""


class patience:  # noqa: N801 - it is used like a function
    """Ask in the body. Raises `Unavailable` when there is no answer within `seconds`.

    A class, since each request passes here at least twice, and a generator's way in and out costs
    as much as the deadline itself.
    """

    __slots__ = ("_scope", "_seconds")

    def __init__(self, seconds: float = PATIENCE) -> None:
        self._seconds = seconds

    def __enter__(self) -> None:
        self._scope = trio.CancelScope(deadline=trio.current_time() + self._seconds)
        self._scope.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._scope.__exit__(kind, error, trace)
        if self._scope.cancelled_caught:
            raise Unavailable(
                "a part of the daemon is being restarted, or waits for the disk; "
                "try again in a few seconds",
                retry_after=5,
            )
