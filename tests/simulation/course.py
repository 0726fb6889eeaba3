"""The course of a simulation: periods with faults, and a check of the recovery after each.

The daemon has recovered when it answers correctly and in time. When all clients have stopped,
nothing of their work may be left.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from math import inf

import trio

from tests.simulation.audit import Audit
from tests.simulation.configuration import IDLE
from tests.simulation.crew_clients import CrewClient
from tests.simulation.crews import CREWS, LONGEST, MOST_WAIT
from tests.simulation.expectations import EXPIRED, CookieId
from tests.simulation.fault_injector import FaultInjector
from tests.simulation.owner import Owner
from tests.simulation.seeded import collect_garbage, random_for
from tests.simulation.sessions import Visitor
from tests.simulation.shoppers import ANSWERED, SUB_IDS, Shopper
from tests.simulation.world import World

STARTED = 40.0
"""Seconds from the first start to readiness."""
NOTICED = 5.0
"""Seconds in which the daemon notices a fault of its browser."""
RECOVERED = 120.0
"""Seconds from the last fault to readiness: a launch that hangs takes 20, and the browser's and the
actors' restart delays are up to 30."""
HEALTHY = 70.0
"""Seconds without faults after which restart delays are short again."""
CALM = 60.0
"""The most seconds in which clients work and no answer may be an error."""
DRAINED = max(ANSWERED, (MOST_WAIT / 2 + 1) * LONGEST)
"""Seconds in which all requests are answered and all executions have ended."""
DELIVERED = 2.5 * 3600.0
"""Seconds in which all webhook calls are made: a retry and a changed clock add an hour each."""
AT_REST = 8.0
"""Seconds in which the daemon cleans up after the last client."""
FORGOTTEN = 1.5 * IDLE
"""Seconds after which the daemon has disposed of an unused context."""
LOGINS = 4
"""Attempts to log in."""
HOUR = 3600.0
LONGEST_REST = 2 * HOUR
OVERTIME = LONGEST_REST + DELIVERED + HOUR
"""Seconds for the last check and the last webhook calls, after the simulated hours."""


class Course:
    """A simulation of `hours` hours."""

    def __init__(self, world: World, hours: float) -> None:
        self._world = world
        self._until = hours * HOUR
        self._chance = random_for(world.seed, "course")
        self._audit = Audit(world, random_for(world.seed, "audit"))
        numbers = [str(2_000_000 + n) for n in range(self._chance.randint(2, 6))]
        self._accounts: list[CookieId] = [(number, "") for number in numbers]
        self._accounts += [(number, "2") for number in numbers[:2]]
        self._owner = Owner(world, self._accounts, random_for(world.seed, "owner"))
        self._tester = Visitor("tester", "198.51.100.2", world)
        self._number = 0

    async def run(self) -> None:
        world = self._world
        with world.scope:
            async with trio.open_nursery() as nursery:
                world.use_nursery(nursery)
                numbers = [account for account, _ in self._accounts]
                injector = FaultInjector(world, numbers, nursery, random_for(world.seed, "nemesis"))
                nursery.start_soon(collect_garbage)
                nursery.start_soon(world.supervise_daemon)
                await self._start()
                for run in self._clients():
                    nursery.start_soon(run)
                while trio.current_time() < self._until:
                    await self._inject_faults(injector)
                    await self._check_recovery()
                await self._finish_deliveries()
                nursery.cancel_scope.cancel()

    def _clients(self) -> list[Callable[[], Awaitable[None]]]:
        world, chance = self._world, self._chance
        shoppers = [self._shopper(n) for n in range(chance.randint(3, 9))]
        crews = [crew for crew in CREWS for _ in range(chance.randint(1, 2))]
        crew_clients = [
            CrewClient(f"{crew} {n}", crew, world, random_for(world.seed, f"crews {n}"))
            for n, crew in enumerate(crews)
        ]
        return [
            self._owner.run,
            *(shopper.run for shopper in shoppers),
            *(client.run for client in crew_clients),
        ]

    def _shopper(self, number: int) -> Shopper:
        chance = random_for(self._world.seed, f"shopper {number}")
        cookie_id = chance.choice(self._accounts)
        if chance.random() < 0.08:
            cookie_id = (cookie_id[0], EXPIRED)
        sub_ids = chance.choice(SUB_IDS)
        visitor = Visitor(f"shopper {number}", f"198.51.100.{10 + number}", self._world)
        return Shopper(visitor, cookie_id, sub_ids, self._world, chance)

    async def _start(self) -> None:
        """Wait for the first start, and record what a healthy daemon has."""
        await self._wait_until_ready(STARTED)
        await self._check_conversion(self._new_account())
        await self._world.read_tokens()
        await trio.sleep(1.0)
        self._audit.record_baseline()

    async def _inject_faults(self, injector: FaultInjector) -> None:
        world, chance = self._world, self._chance
        world.activity = chance.choice((0.2, 0.5, 1.0, 2.0))
        await injector.inject_for(chance.uniform(300.0, 1500.0))
        injector.end_all_faults()

    async def _check_recovery(self) -> None:
        world = self._world
        world.is_calm = True
        began = trio.current_time()
        await trio.sleep(NOTICED)  # the daemon may not have noticed the last fault yet
        await self._wait_until_ready(RECOVERED)
        while not await self._owner.clear_pauses():
            await trio.sleep(1.0)
            if trio.current_time() > began + RECOVERED:
                world.fail("the owner cannot end the pauses")
        await trio.sleep(self._chance.uniform(0.0, HEALTHY))
        await self._wait_until_ready(RECOVERED)
        world.healthy_since = trio.current_time()
        await self._check_conversion(self._new_account())
        for cookie_id in self._accounts:
            await self._check_conversion(cookie_id, data=False)
        await self._audit.check_executions_kept()
        await trio.sleep(self._chance.uniform(10.0, CALM))
        await self._check_idle()
        world.healthy_since = inf
        world.is_calm = False
        world.resume_clients()

    async def _check_idle(self) -> None:
        """Check that nothing is left without clients; often again after a long time."""
        world = self._world
        world.pause_clients()
        with trio.move_on_after(DRAINED) as patience:
            while not world.is_idle:  # noqa: ASYNC110 - there is no event for it
                await trio.sleep(0.5)
        if patience.cancelled_caught:
            world.fail(f"clients or executions have waited for {DRAINED:g} s")
        await self._audit.check_executions_kept()
        await trio.sleep(AT_REST)
        self._audit.check_nothing_left()
        self._audit.check_ends_delivered()
        if self._chance.random() < 0.6:
            world.machine.is_idle = True
            await trio.sleep(self._chance.uniform(FORGOTTEN, LONGEST_REST))
            world.machine.is_idle = False
            self._audit.check_nothing_left()
            self._audit.check_contexts_disposed()

    async def _finish_deliveries(self) -> None:
        """Check that the daemon makes all webhook calls."""
        self._world.pause_clients()
        with trio.move_on_after(DELIVERED):
            while self._audit.pending_deliveries():  # noqa: ASYNC110 - a journal has no event
                await trio.sleep(10.0)
        if pending := self._audit.pending_deliveries():
            self._world.fail(
                f"{pending} webhook calls are not made, although every receiver answers"
            )
        self._audit.check_ends_delivered()

    async def _wait_until_ready(self, within: float) -> None:
        """Wait until /readyz answers 200."""
        world = self._world
        with trio.move_on_after(within):
            while True:
                if world.is_serving:
                    ready = world.ask("GET", "/readyz")
                    if await ready.wait() == 200:
                        return
                await trio.sleep(0.5)
        world.fail(f"the daemon is not ready {within:g} s after the last fault")

    def _new_account(self) -> CookieId:
        self._number += 1
        return str(3_000_000 + self._number), ""

    async def _check_conversion(self, cookie_id: CookieId, *, data: bool = True) -> None:
        """Check a conversion with this cookie, while nothing is wrong."""
        world = self._world
        chance = random_for(world.seed, "tester")
        shopper = Shopper(self._tester, cookie_id, ("try",), world, chance)
        with world.busy():
            for _ in range(LOGINS):
                session = await self._tester.get_session()
                if session is not None and await shopper.check_conversion(session, data=data):
                    return
        world.fail("nobody can log in")
