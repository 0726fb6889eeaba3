"""Sessions as clients hold them. A good one is never refused."""

from __future__ import annotations

from dataclasses import dataclass

import trio

from tests.simulation.calls import Call
from tests.simulation.configuration import PASSWORD
from tests.simulation.world import World

WEEK = 7 * 86_400.0
SKEW = 60.0
"""Seconds by which a clock may go back without harm to a session."""


@dataclass(eq=False)
class Session:
    token: str
    made: float


class Visitor:
    """Somebody who logs in when it is needed, from an address of their own."""

    def __init__(self, name: str, address: str, world: World) -> None:
        self.name = name
        self.address = address
        self.session: Session | None = None
        self._world = world
        self._one_at_a_time = trio.Lock()

    async def ready(self) -> Session | None:
        """A session that has not been refused yet; None when there is none to be had now."""
        async with self._one_at_a_time:
            if self.session is None:
                self.session = await self._log_in()
            return self.session

    def seen(self, call: Call, session: Session) -> None:
        """This came back. With a 403 the session is thrown away, as clients were told to."""
        if call.status != 403:
            return
        now = self._world.wall.now()
        is_good = session.made - SKEW <= now < session.made + WEEK
        if is_good and self._world.clock_set < call.began:
            self._world.broken(f"a good session was refused: {call.error}")
        if self.session is session:
            self.session = None

    async def _log_in(self) -> Session | None:
        made = self._world.wall.now()
        call = await self._world.answered(
            self.name, "POST", "/api/auth/login", {"password": PASSWORD}, address=self.address
        )
        if call.status not in (0, 200, 503):
            self._world.broken(f"the right password was answered {call.status}: {call.error}")
        if call.status != 200:
            return None
        self._world.log.counts["logins"] += 1
        return Session(call.answer["token"], made)
