"""Sessions of clients. The daemon must not refuse a valid one."""

from __future__ import annotations

from dataclasses import dataclass

import trio

from tests.simulation.configuration import PASSWORD
from tests.simulation.world import Call, World

WEEK = 7 * 86_400.0
SKEW = 60.0
"""Seconds by which the clock may go back while a session stays valid."""


@dataclass(eq=False)
class Session:
    """A session token. `made` is in Unix seconds."""

    token: str
    made: float


class Visitor:
    """A client that logs in when needed, from `address`."""

    def __init__(self, name: str, address: str, world: World) -> None:
        self.name = name
        self.address = address
        self.session: Session | None = None
        self._world = world
        self._lock = trio.Lock()

    async def get_session(self) -> Session | None:
        """Return a session that has not been refused; None when the login fails."""
        async with self._lock:
            if self.session is None:
                self.session = await self._log_in()
            return self.session

    def note_answer(self, call: Call, session: Session) -> None:
        """Check an answer, and discard the session after a 403."""
        if call.status != 403:
            return
        now = self._world.wall.now()
        is_good = session.made - SKEW <= now < session.made + WEEK
        if is_good and self._world.clock_set < call.began:
            self._world.fail(f"a good session was refused: {call.error}")
        if self.session is session:
            self.session = None

    async def _log_in(self) -> Session | None:
        made = self._world.wall.now()
        # It comes through the owner's proxy.
        headers = {"x-forwarded-for": self.address}
        call = await self._world.answered(
            self.name, "POST", "/api/auth/login", {"password": PASSWORD}, headers=headers
        )
        if call.status != 200:
            return None
        self._world.log.counts["logins"] += 1
        return Session(call.answer["token"], made)
