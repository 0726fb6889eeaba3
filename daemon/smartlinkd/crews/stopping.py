"""A stop that was begun, and what whoever asked for it waits for.

It takes as long as its worker, which may be minutes. So each asker waits for it by themselves: a
hand of the executor's that did would be missed by other crews' kickoffs, and many wait at once when
somebody stops all they have.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import trio

from smartlinkd.errors import Invalid, Unavailable
from smartlinkd.store.model import Status


@dataclass(frozen=True)
class Stopping:
    """`ended` is set when it has ended and nothing is left of its worker, or when the executor has
    ended before that. `within` is how many seconds whoever has asked waits for it. `outcome` is
    what it has ended as: None until that is recorded, which may be while its worker's folder is
    still being removed, and for good when the executor has ended before."""

    ended: trio.Event
    within: float
    outcome: Callable[[], Status | None]

    async def wait_over(self) -> None:
        """Wait for it. Raises `Invalid` when it came to another end before, and `Unavailable` when
        it takes longer, or the executor has ended meanwhile."""
        with trio.move_on_after(self.within):
            await self.ended.wait()
        outcome = self.outcome()
        if outcome is None and not self.ended.is_set():
            raise Unavailable(
                "it is being stopped, but the journal cannot record its end at the moment, as with "
                "a full disk; ask /status later what it has ended as",
                retry_after=5,
            )
        if outcome is None:
            raise Unavailable(
                "it was being stopped when the daemon, or this part of it, ended; ask /status what "
                "has become of it",
                retry_after=5,
            )
        if outcome is not Status.STOPPED:
            raise Invalid("kickoff_id: this execution ended by itself before it was stopped")
