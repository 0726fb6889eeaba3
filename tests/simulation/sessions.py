"""Who may in: sessions as clients hold them, and what is known of which are good.

The one who changes that is the owner; while a change is under way, or its outcome was lost with the
connection, either answer is right.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyotp
import trio

from tests.simulation.calls import Call
from tests.simulation.configuration import PASSWORD
from tests.simulation.world import World

STEP = 30
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
        self.secret: str | None = None
        """Of the second factor, when it is on."""
        self.maybe: set[str | None] = {None}
        """All that it may be."""
        self.used: set[tuple[str, str, int]] = set()
        """Secrets, codes and steps that have let somebody in."""
        self._world = world
        self._shown = 0

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

    async def code(self, secret: str) -> str:
        """What the phone shows for it, as soon as that is something new: there is one phone, and
        it is passed around."""
        # The phone's clock is the one on the wall.
        while (step := int(self._world.wall.now()) // STEP) == self._shown:  # noqa: ASYNC110
            await trio.sleep(STEP - self._world.wall.now() % STEP)
        self._shown = step
        return pyotp.TOTP(secret).at(step * STEP)

    def let_in(self, secret: str, code: str) -> None:
        """This code was taken. One may be taken once."""
        totp, now = pyotp.TOTP(secret), int(self._world.wall.now())
        steps = [n for n in (-1, 0, 1) if totp.at(now + STEP * n) == code]
        if not steps and self._world.clock_set < trio.current_time() - ANSWERED:
            self._world.broken("a code of another time was taken")
        for n in steps[:1]:
            key = (secret, code, now // STEP + n)
            if key in self.used:
                self._world.broken("a code was taken twice")
            self.used.add(key)


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
        before = set(gate.maybe)  # the answer may be of before a change that is known by then
        call = await self.ask("/api/auth/login", {"password": PASSWORD})
        if call.status not in (0, 200, 503):
            self._world.broken(f"the right password was answered {call.status}: {call.error}")
        if call.status != 200:
            return None
        if call.body["mfaRequired"]:
            if before | gate.maybe == {None}:
                self._world.broken("a login wants a second factor, and there is none")
            return await self._second_step(call.body["tempToken"])
        if None not in before | gate.maybe:
            self._world.broken("a login without the second factor that is on")
        self._world.log.counts["logins"] += 1
        return gate.session(call.body["token"], made, era)

    async def _second_step(self, temp_token: str) -> Session | None:
        gate = self._gate
        secret = gate.secret
        if secret is None:
            return None  # it was switched off, or the owner has yet to find out
        code = await gate.code(secret)
        era, made = gate.era, self._world.wall.now()
        call = await self.ask("/api/auth/verify-mfa", {"tempToken": temp_token, "code": code})
        if call.status not in (0, 200, 401, 403, 429, 503):
            self._world.broken(f"a code was answered {call.status}: {call.error}")
        if call.status != 200:
            return None
        gate.let_in(secret, code)
        self._world.log.counts["logins"] += 1
        return gate.session(call.body["token"], made, era)
