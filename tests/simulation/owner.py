"""The owner, who looks after all of it; and those who would like to be the owner."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence

import trio

from smartlinkd.errors import Refused
from tests.simulation.books import NOBODY, Whose
from tests.simulation.calls import Call
from tests.simulation.configuration import CONTEXTS, QUEUE
from tests.simulation.cookies import cookie_of
from tests.simulation.sessions import ANSWERED, Gatekeeping, Session, Visitor
from tests.simulation.world import World

EVERY = 90.0
"""Seconds between two chores."""
GUESSES = ("123456", "password", "correct horsf")
LINKS = 15
"""The most in one request: three submits, when no others fit with them."""

MALFORMED: Sequence[tuple[str, str, bytes, int]] = (
    ("POST", "/api/convert", b"{", 400),
    ("POST", "/api/convert", b'{"links": []}', 400),
    ("POST", "/api/convert", b'{"links": ' + b'["x"' + b', "x"' * 15 + b"]}", 400),
    ("POST", "/api/convert", b'{"links": ["x"], "subIds": ["a b"]}', 400),
    ("POST", "/api/convert", b'{"links": ["x"], "cookie": "no pairs"}', 400),
    ("POST", "/api/nowhere", b"{}", 404),
    ("DELETE", "/api/convert", b"", 405),
)


class Owner:
    """See above. `accounts` are the owner's."""

    def __init__(
        self, world: World, gate: Gatekeeping, accounts: Sequence[Whose], chance: random.Random
    ) -> None:
        self._world = world
        self._gate = gate
        self._accounts = accounts
        self._chance = chance
        self._me = Visitor("owner", "198.51.100.1", world, gate)
        self._switching = trio.Lock()
        self._chores: dict[Callable[[], Awaitable[None]], int] = {
            self.sync_cookie: 30,
            self.read_cookie: 10,
            self.look_at_status: 20,
            self.clear_accounts: 12,
            self.guess: 8,
            self.send_nonsense: 8,
            self.switch_second_factor: 6,
            self.revoke: 2,
        }

    async def live(self) -> None:
        chores, weights = list(self._chores), list(self._chores.values())
        while True:
            await trio.sleep(self._chance.expovariate(self._world.bustle / EVERY))
            await self._world.open_hours()
            with self._world.busy():
                await self._chance.choices(chores, weights)[0]()

    # The cookie

    async def sync_cookie(self) -> None:
        world, whose = self._world, self._chance.choice(self._accounts)
        path = self._chance.choice(("/api/sync-cookie", "/api/sync-cookie-local"))
        world.books.syncing(whose)
        call = await self._ask("POST", path, {"cookie": cookie_of(whose), "accountName": whose[0]})
        world.books.synced(whose, surely=call.status == 200)
        if call.status not in (0, 200, 503):
            world.broken(f"a cookie was answered {call.status}: {call.error}")

    async def read_cookie(self) -> None:
        world = self._world
        before = set(world.books.stored)
        call = await self._ask("GET", "/api/sync-cookie")
        if call.status not in (0, 200, 503):
            world.broken(f"the stored cookie: {call.status} {call.error}")
        if call.status != 200:
            return
        may_be = {cookie_of(whose) for whose in (before | world.books.stored) if whose != NOBODY}
        nothing = NOBODY in before | world.books.stored
        if not (call.body["cookie"] in may_be if call.body["ok"] else nothing):
            world.broken(f"the stored cookie is one that was not stored: {call.body}")

    async def clear_accounts(self) -> None:
        """As after the checks have been answered in an ordinary browser."""
        await self.heal()

    async def heal(self) -> bool:
        """End all pauses, and all doubts about the second factor; whether that is done."""
        if len(self._gate.maybe) > 1:
            await self.switch_second_factor()
        self._world.books.resumed()
        done = await self._command("account clear")
        self._world.books.resumed()
        return done

    # Looks

    async def look_at_status(self) -> None:
        session = await self._me.ready()
        if session is None:
            return
        era = self._gate.known_era
        call = await self._ask("GET", "/api/status", token=session.token)
        self._me.seen(call, session, era)
        if call.status not in (0, 200, 403, 503):
            self._world.broken(f"the status page was answered {call.status}: {call.error}")
        if call.status == 200:
            self._check_bounds(call)

    def _check_bounds(self, call: Call) -> None:
        browser, conversion = call.body["browser"], call.body["conversion"]
        submits = conversion["submitsWaiting"] if conversion else 0
        # Who found a place in the line brings all of a request's links.
        if submits > QUEUE * LINKS // 5 or browser["jobsWaiting"] > QUEUE:
            self._world.broken(f"a queue has grown beyond its bound: {call.body}")
        if browser["contexts"] > CONTEXTS + browser["jobsRunning"]:
            self._world.broken(f"more contexts than may be warm: {browser}")

    async def send_nonsense(self) -> None:
        session = await self._me.ready()
        if session is None:
            return
        method, path, body, due = self._chance.choice(MALFORMED)
        era = self._gate.known_era
        call = await self._ask(method, path, body, token=session.token)
        self._me.seen(call, session, era)
        if call.status not in (0, 403, 503, due) or (due != 400 and call.status not in (0, due)):
            self._world.broken(f"{method} {path} {body!r} was answered {call.status}")

    # The door

    async def guess(self) -> None:
        """Somebody tries passwords, from an address of theirs."""
        thief = Visitor("thief", f"203.0.113.{self._chance.randint(1, 3)}", self._world, self._gate)
        for _ in range(self._chance.randint(1, 14)):
            password = self._chance.choice(GUESSES)
            call = await thief.ask("/api/auth/login", {"password": password})
            if call.status not in (0, 401, 429, 503):
                self._world.broken(f"a wrong password was answered {call.status}")

    async def revoke(self) -> None:
        """End all sessions."""
        gate = self._gate
        gate.unsure += 1
        done = await self._command("tokens revoke")
        gate.era += 1
        if done:
            gate.unsure = 0

    async def switch_second_factor(self) -> None:
        """On or off, with a code; or off without, as who has lost the phone. One after the other:
        there is one owner."""
        async with self._switching:
            await self._switch_second_factor()

    async def _switch_second_factor(self) -> None:
        gate = self._gate
        if len(gate.maybe) > 1 or (gate.secret is not None and self._chance.random() < 0.3):
            if await self._command("2fa off"):
                gate.secret, gate.maybe = None, {None}
            else:
                gate.maybe |= {None}
        elif gate.secret is not None:
            await self._switch_off(gate.secret)
        else:
            await self._switch_on()

    async def _command(self, name: str) -> bool:
        """Something in the owner's shell; False when it may not have been done."""
        done = None
        with trio.move_on_after(ANSWERED):
            try:
                done = await self._world.command(name)
            except Refused as refusal:
                self._world.log.note(f"owner: {name}: {refusal}")
        self._world.log.note(f"owner: {name}: {done}", count="requests")
        return done is not None

    async def _switch_on(self) -> None:
        session = await self._me.ready()
        if session is None:
            return
        era = self._gate.known_era
        call = await self._ask("GET", "/api/auth/2fa/setup", token=session.token)
        self._me.seen(call, session, era)
        if call.status == 200:
            await self._enable(session, call.body["secret"])

    async def _enable(self, session: Session, secret: str) -> None:
        gate = self._gate
        gate.maybe, gate.secret = {None, secret}, secret
        gate.unsure += 1
        code = await gate.code(secret)
        call = await self._me.ask(
            "/api/auth/2fa/enable", {"secret": secret, "code": code}, session.token
        )
        if call.status == 200:
            gate.let_in(secret, code)
            gate.maybe = {secret}
            gate.era += 1
            session.era = gate.era
            gate.unsure = 0
        elif call.status in (400, 401, 403, 429):
            gate.maybe, gate.secret = {None}, None
            gate.unsure -= 1

    async def _switch_off(self, secret: str) -> None:
        session = await self._me.ready()
        if session is None:
            return
        gate = self._gate
        gate.maybe = {None, secret}
        code = await gate.code(secret)
        call = await self._me.ask("/api/auth/2fa/disable", {"code": code}, session.token)
        if call.status == 200:
            gate.let_in(secret, code)
            gate.secret, gate.maybe = None, {None}
        elif call.status in (400, 401, 403, 429):
            gate.maybe = {secret}

    async def _ask(
        self, method: str, path: str, body: dict[str, str] | bytes | None = None, token: str = ""
    ) -> Call:
        """From this machine, without the proxy."""
        call = self._world.ask(method, path, body, token=token)
        with trio.move_on_after(ANSWERED):
            await call.answered()
        if not call.exchange.ended.is_set():
            self._world.broken(f"{method} {path} was not answered within {ANSWERED:g} s")
        self._world.log.note(f"owner: {method} {path} {call.status}", count="requests")
        return call
