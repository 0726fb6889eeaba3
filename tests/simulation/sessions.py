"""Who may in: sessions as clients hold them, and what is known of which are good.

The one who changes that is the owner; while a change is under way, or its outcome was lost with the
connection, either answer is right.
"""

from __future__ import annotations

from dataclasses import dataclass

import trio

from tests.simulation.calls import Call
from tests.simulation.configuration import PASSWORD
from tests.simulation.world import World

WEEK = 7 * 86_400.0
SKEW = 60.0
"""Seconds by which a clock may go back without harm to a session."""
ANSWERED = 2 * 8.0 + 0.5
"""Seconds for who asks, and as many for what is asked."""


@dataclass(eq=False)
class Session:
    """A token. `made` is in Unix seconds, and `era` that in which it was made; -1: not known."""

    token: str
    made: float
    era: int


class Gatekeeping:
    """What is known of the daemon's door."""

    def __init__(self, world: World) -> None:
        self.era = 0
        self.unsure = 0
        """Changes under way; one whose outcome is not known is so until the next that is."""
        self._world = world

    def may_be_refused(self, session: Session, call: Call) -> bool:
        now = self._world.wall.now()
        return (
            session.era != self.era
            or self.unsure > 0
            or self._world.clock_set >= call.began
            or not session.made - SKEW <= now < session.made + WEEK
        )

    @property
    def known_era(self) -> int:
        """-1 while it is not known whether a change has been made."""
        return -1 if self.unsure else self.era

    def must_be_refused(self, session: Session, era: int) -> bool:
        """`era` is the known one of when the request was sent."""
        return 0 <= session.era < era

    def session(self, token: str, made: float, era: int) -> Session:
        """One that was asked for in this era."""
        return Session(token, made, era if era == self.era and not self.unsure else -1)

    def looks_at(self, call: Call, session: Session, era: int) -> None:
        """An answer to a request with this session."""
        if call.status == 403 and not self.may_be_refused(session, call):
            self._world.broken(f"a good session was refused: {call.error}")
        if call.status in (200, 400, 502) and self.must_be_refused(session, era):
            self._world.broken(f"a session that has ended was let in: {call.status}")


class Visitor:
    """Somebody who logs in when it is needed, from an address of their own."""

    def __init__(self, name: str, address: str, world: World, gate: Gatekeeping) -> None:
        self.name = name
        self.address = address
        self.session: Session | None = None
        self._world = world
        self._gate = gate
        self._one_at_a_time = trio.Lock()

    async def ready(self) -> Session | None:
        """A session that has not been refused yet; None when there is none to be had now."""
        async with self._one_at_a_time:
            if self.session is None:
                self.session = await self._log_in()
            return self.session

    def seen(self, call: Call, session: Session, era: int) -> None:
        """This came back. With a 403 the session is thrown away, as clients were told to."""
        self._gate.looks_at(call, session, era)
        if call.status == 403 and self.session is session:
            self.session = None

    async def ask(self, path: str, body: dict[str, str], token: str = "") -> Call:
        call = self._world.ask("POST", path, body, token=token, address=self.address)
        with trio.move_on_after(ANSWERED):
            await call.answered()
        if not call.exchange.ended.is_set():
            self._world.broken(f"{path} was not answered within {ANSWERED:g} s")
        self._world.log.note(f"{self.name}: {path} {call.status}", count="requests")
        return call

    async def _log_in(self) -> Session | None:
        gate = self._gate
        era, made = gate.era, self._world.wall.now()
        call = await self.ask("/api/auth/login", {"password": PASSWORD})
        if call.status not in (0, 200, 503):
            self._world.broken(f"the right password was answered {call.status}: {call.error}")
        if call.status != 200:
            return None
        self._world.log.counts["logins"] += 1
        return gate.session(call.body["token"], made, era)
