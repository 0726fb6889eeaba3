"""The course of a simulated time: storms, in which things go wrong, and calms, without any.

After each storm it is looked at whether the daemon has come back to what it was: it answers, well
and in time; and when people have gone, nothing of all that is left.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from math import inf

import trio

from tests.simulation.audit import Audit
from tests.simulation.books import EXPIRED, Whose
from tests.simulation.configuration import IDLE
from tests.simulation.crew_clients import CrewClient
from tests.simulation.crews import CREWS, LONGEST, MOST_WAIT
from tests.simulation.nemesis import Nemesis
from tests.simulation.owner import Owner
from tests.simulation.seeded import collect_garbage, dice
from tests.simulation.sessions import Visitor
from tests.simulation.shoppers import ANSWERED, SUB_IDS, Habits, Shopper
from tests.simulation.world import World

STARTED = 40.0
NOTICED = 5.0
"""Seconds in which the daemon notices that its browser is not well."""
RECOVERED = 120.0
"""Seconds from the end of a storm to a daemon that is as good as new: a launch that hangs has 20,
the waits between two have 30, and so have those of its parts."""
HEALTHY = 70.0
"""Seconds of peace after which waits begin anew."""
FINE = 60.0
"""Seconds for which people come and go, and all has to be fine."""
DRAINED = max(ANSWERED, (MOST_WAIT / 2 + 1) * LONGEST)
"""Seconds in which whoever asks is answered, and whatever was begun has ended."""
TOLD = 2.5 * 3600.0
"""Seconds in which all webhook calls are made: an hour's wait, and one by which a clock was set."""
AT_REST = 8.0
"""Seconds in which nothing is left of anybody's work."""
FORGOTTEN = 1.5 * IDLE
"""Seconds after which an unused context is gone."""
LOGINS = 4
"""Tries to log in."""
HOUR = 3600.0
LONGEST_REST = 2 * HOUR
OVERTIME = LONGEST_REST + TOLD + HOUR
"""Seconds that a course may last beyond its hours: the last storm and calm, and what is owed."""


class Course:
    def __init__(self, world: World, hours: float) -> None:
        self._world = world
        self._until = hours * HOUR
        self._chance = dice(world.seed, "course")
        self._audit = Audit(world, dice(world.seed, "audit"))
        numbers = [str(2_000_000 + n) for n in range(self._chance.randint(2, 6))]
        self._accounts: list[Whose] = [(number, "") for number in numbers]
        self._accounts += [(number, "2") for number in numbers[:2]]
        self._owner = Owner(world, self._accounts, dice(world.seed, "owner"))
        self._tester = Visitor("tester", "198.51.100.2", world)
        self._number = 0

    async def run(self) -> None:
        world = self._world
        with world.scope:
            async with trio.open_nursery() as nursery:
                world.inhabit(nursery)
                numbers = [account for account, _ in self._accounts]
                nemesis = Nemesis(world, numbers, nursery, dice(world.seed, "nemesis"))
                nursery.start_soon(collect_garbage)
                nursery.start_soon(world.keep_daemon)
                await self._begin()
                for live in self._people():
                    nursery.start_soon(live)
                while trio.current_time() < self._until:
                    await self._storm(nemesis)
                    await self._calm()
                await self._end()
                nursery.cancel_scope.cancel()

    def _people(self) -> list[Callable[[], Awaitable[None]]]:
        people = [person.live for person in self._shoppers()]
        return [self._owner.live, *people, *(each.live for each in self._crew_clients())]

    def _shoppers(self) -> list[Shopper]:
        return [self._shopper(n) for n in range(self._chance.randint(3, 9))]

    def _shopper(self, number: int) -> Shopper:
        chance = dice(self._world.seed, f"shopper {number}")
        whose = chance.choice(self._accounts)
        if chance.random() < 0.08:
            whose = (whose[0], EXPIRED)
        habits = Habits(
            whose=whose,
            sub_ids=chance.choice(SUB_IDS),
            every=chance.uniform(120.0, 600.0),
            burst=chance.choice((0.0, 0.02, 0.1)),
            stored=chance.choice((0.0, 0.3, 1.0)),
            leaves=chance.choice((0.0, 0.1, 0.4)),
            hot=chance.uniform(0.0, 0.8),
        )
        visitor = Visitor(f"shopper {number}", f"198.51.100.{10 + number}", self._world)
        return Shopper(visitor, habits, self._world, chance)

    def _crew_clients(self) -> list[CrewClient]:
        crews = [crew for crew in CREWS for _ in range(self._chance.randint(1, 2))]
        return [
            CrewClient(f"{crew} {n}", crew, self._world, dice(self._world.seed, f"crews {n}"))
            for n, crew in enumerate(crews)
        ]

    async def _begin(self) -> None:
        """What a healthy daemon has is what it has now."""
        await self._up(STARTED)
        await self._try_out(self._fresh())
        await self._world.read_tokens()
        await trio.sleep(1.0)
        self._audit.learn()

    async def _storm(self, nemesis: Nemesis) -> None:
        world, chance = self._world, self._chance
        world.bustle = chance.choice((0.2, 0.5, 1.0, 2.0))
        await nemesis.rage(chance.uniform(300.0, 1500.0))
        nemesis.rest()

    async def _calm(self) -> None:
        world = self._world
        world.calm = True
        rested = trio.current_time()
        await trio.sleep(NOTICED)  # what went wrong last may have gone unnoticed until now
        await self._up(RECOVERED)
        while not await self._owner.heal():
            await trio.sleep(1.0)
            if trio.current_time() > rested + RECOVERED:
                world.broken("the owner cannot end the pauses")
        await trio.sleep(self._chance.uniform(0.0, HEALTHY))
        await self._up(RECOVERED)
        world.fine_since = trio.current_time()
        await self._try_out(self._fresh())
        for whose in self._accounts:
            await self._try_out(whose, data=False)
        await self._audit.nothing_forgotten()
        await trio.sleep(self._chance.uniform(10.0, FINE))
        await self._leave_alone()
        world.fine_since = inf
        world.calm = False
        world.open()

    async def _leave_alone(self) -> None:
        """Nobody comes, and nothing is left. Often for a long time."""
        world = self._world
        world.close()
        with trio.move_on_after(DRAINED) as patience:
            while not world.deserted:  # noqa: ASYNC110 - they do not say when they have gone
                await trio.sleep(0.5)
        if patience.cancelled_caught:
            world.broken(f"there are people, or executions, who wait for {DRAINED:g} s")
        await self._audit.nothing_forgotten()
        await trio.sleep(AT_REST)
        self._audit.nothing_left()
        self._audit.nothing_untold()
        if self._chance.random() < 0.6:
            world.machine.be_quiet(True)
            await trio.sleep(self._chance.uniform(FORGOTTEN, LONGEST_REST))
            world.machine.be_quiet(False)
            self._audit.nothing_left()
            self._audit.only_the_canary()

    async def _end(self) -> None:
        """All that is owed is paid."""
        self._world.close()
        with trio.move_on_after(TOLD):
            while self._audit.owed():  # noqa: ASYNC110 - a disk tells nobody
                await trio.sleep(10.0)
        if owed := self._audit.owed():
            self._world.broken(f"{owed} webhook calls are owed, and everybody listens")
        self._audit.nothing_untold()

    async def _up(self, within: float) -> None:
        """Wait until the daemon says that it is as good as new."""
        world = self._world
        with trio.move_on_after(within):
            while True:
                if world.up:
                    ready = world.ask("GET", "/readyz")
                    if await ready.wait() == 200:
                        return
                await trio.sleep(0.5)
        world.broken(f"the daemon is not ready {within:g} s after all that was wrong")

    def _fresh(self) -> Whose:
        self._number += 1
        return str(3_000_000 + self._number), ""

    async def _try_out(self, whose: Whose, *, data: bool = True) -> None:
        """A conversion for this account, while nothing is wrong."""
        world = self._world
        habits = Habits(whose, ("try",), 1.0, 0.0, 0.0, 0.0, 0.0)
        shopper = Shopper(self._tester, habits, world, self._chance)
        with world.busy():
            for _ in range(LOGINS):
                session = await self._tester.ready()
                if session is not None and await shopper.try_out(session, data=data):
                    return
        world.broken("nobody can log in")
