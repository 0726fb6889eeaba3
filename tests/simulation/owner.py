"""The owner, who looks after all of it."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence

import trio

from smartlinkd.errors import Refused
from tests.simulation.books import NOBODY, Whose
from tests.simulation.calls import Call
from tests.simulation.configuration import CONTEXTS, QUEUE
from tests.simulation.sessions import Visitor
from tests.simulation.upstream import cookie_of
from tests.simulation.world import ANSWERED, World

EVERY = 90.0
"""Seconds between two chores."""
LINKS = 15
"""The most in one request: three submits, when no others fit with them."""


class Owner:
    """See above. `accounts` are the owner's."""

    def __init__(self, world: World, accounts: Sequence[Whose], chance: random.Random) -> None:
        self._world = world
        self._accounts = accounts
        self._chance = chance
        self._me = Visitor("owner", "198.51.100.1", world)
        self._chores: dict[Callable[[], Awaitable[None]], int] = {
            self.sync_cookie: 30,
            self.read_cookie: 10,
            self.look_at_status: 20,
            self.clear_accounts: 12,
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
        body = {"cookie": cookie_of(whose), "accountName": whose[0]}
        world.books.syncing(whose)
        call = await world.answered("owner", "POST", path, body)
        world.books.synced(whose, surely=call.status == 200)
        if call.status not in (0, 200, 503):
            world.broken(f"a cookie was answered {call.status}: {call.error}")

    async def read_cookie(self) -> None:
        world = self._world
        before = set(world.books.stored)
        call = await world.answered("owner", "GET", "/api/sync-cookie")
        if call.status not in (0, 200, 503):
            world.broken(f"the stored cookie: {call.status} {call.error}")
        if call.status != 200:
            return
        may_be = {cookie_of(whose) for whose in (before | world.books.stored) if whose != NOBODY}
        nothing = NOBODY in before | world.books.stored
        if not (call.answer["cookie"] in may_be if call.answer["ok"] else nothing):
            world.broken(f"the stored cookie is one that was not stored: {call.answer}")

    async def clear_accounts(self) -> None:
        """As after the checks have been answered in an ordinary browser."""
        await self.heal()

    async def heal(self) -> bool:
        self._world.books.resumed()
        done = await self._command("account clear")
        self._world.books.resumed()
        return done

    # Looks

    async def look_at_status(self) -> None:
        session = await self._me.ready()
        if session is None:
            return
        call = await self._world.answered("owner", "GET", "/api/status", token=session.token)
        self._me.seen(call, session)
        if call.status not in (0, 200, 403, 503):
            self._world.broken(f"the status page was answered {call.status}: {call.error}")
        if call.status == 200:
            self._check_bounds(call)

    def _check_bounds(self, call: Call) -> None:
        browser, conversion = call.answer["browser"], call.answer["conversion"]
        submits = conversion["submitsWaiting"] if conversion else 0
        # Who found a place in the line brings all of a request's links.
        if submits > QUEUE * LINKS // 5 or browser["jobsWaiting"] > QUEUE:
            self._world.broken(f"a queue has grown beyond its bound: {call.answer}")
        if browser["contexts"] > CONTEXTS + browser["jobsRunning"]:
            self._world.broken(f"more contexts than may be warm: {browser}")

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
