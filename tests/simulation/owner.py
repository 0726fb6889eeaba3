"""The owner: stores cookies, reads the status, and ends pauses."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence

import trio

from smartlinkd.errors import Refused
from tests.simulation.configuration import CONTEXTS, QUEUE
from tests.simulation.expectations import NOBODY, CookieId
from tests.simulation.sessions import Visitor
from tests.simulation.upstream import cookie_of
from tests.simulation.world import ANSWERED, Call, World

INTERVAL = 90.0
"""Mean seconds between two actions."""
LINKS = 15
"""The most links of a request: three submits, when none is shared with other requests."""


class Owner:
    """The owner of `accounts`."""

    def __init__(self, world: World, accounts: Sequence[CookieId], chance: random.Random) -> None:
        self._world = world
        self._accounts = accounts
        self._chance = chance
        self._visitor = Visitor("owner", "198.51.100.1", world)
        self._actions: dict[Callable[[], Awaitable[object]], int] = {
            self.sync_cookie: 30,
            self.read_cookie: 10,
            self.read_status: 20,
            self.clear_pauses: 12,
        }

    async def run(self) -> None:
        actions, weights = list(self._actions), list(self._actions.values())
        while True:
            await trio.sleep(self._chance.expovariate(self._world.activity / INTERVAL))
            await self._world.wait_while_paused()
            with self._world.busy():
                await self._chance.choices(actions, weights)[0]()

    # The cookie

    async def sync_cookie(self) -> None:
        world, cookie_id = self._world, self._chance.choice(self._accounts)
        path = self._chance.choice(("/api/sync-cookie", "/api/sync-cookie-local"))
        body = {"cookie": cookie_of(cookie_id), "accountName": cookie_id[0]}
        world.expectations.syncing(cookie_id)
        call = await world.answered("owner", "POST", path, body)
        world.expectations.synced(cookie_id, is_certain=call.status == 200)

    async def read_cookie(self) -> None:
        world = self._world
        before = set(world.expectations.stored)
        call = await world.answered("owner", "GET", "/api/sync-cookie")
        if call.status != 200:
            return
        may_be = {
            cookie_of(cookie_id)
            for cookie_id in (before | world.expectations.stored)
            if cookie_id != NOBODY
        }
        nothing = NOBODY in before | world.expectations.stored
        if not (call.answer["cookie"] in may_be if call.answer["ok"] else nothing):
            world.fail(f"the stored cookie is one that was not stored: {call.answer}")

    async def clear_pauses(self) -> bool:
        """End all pauses, as after human checks were solved; False when that may have failed."""
        world, done, name = self._world, None, "account clear"
        world.expectations.resumed()
        with trio.move_on_after(ANSWERED):
            try:
                if world.daemon is not None and world.daemon.serving:
                    done = await world.daemon.commands[name].run(None)
            except Refused as refusal:
                world.log.note(f"owner: {name}: {refusal}")
        world.log.note(f"owner: {name}: {done}", count="requests")
        world.expectations.resumed()
        return done is not None

    # The status

    async def read_status(self) -> None:
        session = await self._visitor.get_session()
        if session is None:
            return
        call = await self._world.answered(
            "owner", "GET", "/api/status", token=session.token, refusal=403
        )
        self._visitor.note_answer(call, session)
        if call.status == 200:
            self._check_bounds(call)

    def _check_bounds(self, call: Call) -> None:
        browser, conversion = call.answer["browser"], call.answer["conversion"]
        submits = conversion["submitsWaiting"] if conversion else 0
        # The bound is checked before a request's links are added, so they may exceed it.
        if submits > QUEUE * LINKS // 5 or browser["jobsWaiting"] > QUEUE:
            self._world.fail(f"a queue exceeds its bound: {call.answer}")
        if browser["contexts"] > CONTEXTS + browser["jobsRunning"]:
            self._world.fail(f"more open contexts than configured: {browser}")
