"""Is what the daemon says of its browser true? Looked at now and then, and closer when not.

For five seconds it may be wrong, in both directions: longer than that it may neither claim a
browser that runs no script, nor deny one that does.
"""

from __future__ import annotations

import trio

from tests.simulation.world import World

LOOK_EVERY = 2.5
CLOSER = 0.1
HONEST = 5.0
PROBE_EVERY = 60.0
"""Seconds between two looks over HTTP, as monitors take them: each costs as much as a request. One
more is taken whenever there has been time enough to notice a change."""
ANSWERED = 8.5


class Readiness:
    """A monitor. It looks at one daemon after the other."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._truth = False
        self._changed = 0.0
        self._wrong_since: float | None = None
        self._next_probe = 0.0

    async def watch(self) -> None:
        async with trio.open_nursery() as nursery:
            while True:
                await trio.sleep(LOOK_EVERY if self._wrong_since is None else CLOSER)
                if self._look():
                    nursery.start_soon(self._probe)

    def _look(self) -> bool:
        """True when it is time for a look over HTTP."""
        world, now = self._world, trio.current_time()
        truth = world.up and world.machine.well
        if truth != self._truth:
            self._truth, self._changed = truth, now
            self._next_probe = now + HONEST + CLOSER
        if not world.up or world.life is None or world.life.browser.is_ready == truth:
            self._wrong_since = None
        elif self._wrong_since is None:
            self._wrong_since = now
        elif now - self._wrong_since > HONEST + CLOSER:
            claim = "denies a browser that is" if truth else "claims a browser that is not"
            world.broken(f"for {now - self._wrong_since:.1f} s the daemon {claim} well")
        if not world.up or now < self._next_probe:
            return False
        self._next_probe = now + PROBE_EVERY
        return True

    async def _probe(self) -> None:
        world = self._world
        health, ready = world.ask("GET", "/api/health"), world.ask("GET", "/readyz")
        statuses = await health.answered(), await ready.answered()
        if not all(statuses):
            return  # the daemon has ended
        world.log.note(f"health {statuses[0]}, ready {statuses[1]}", count="requests")
        if statuses[0] != 200 or statuses[1] not in (200, 503):
            world.broken(f"health and readiness were answered with {statuses}")
        if max(health.seconds, ready.seconds) > ANSWERED:
            world.broken(f"health took {health.seconds:.1f} s, readiness {ready.seconds:.1f} s")
        if trio.current_time() - self._changed <= HONEST or self._wrong_since is not None:
            return
        if health.body["browserReady"] is not self._truth:
            world.broken(
                f"/api/health says {health.body}, and the browser's being well is {self._truth}"
            )
        # Of a part that is down it may say so, unless nothing has been wrong for long.
        ready_is_due = self._truth and world.was_fine(ready.began)
        if (statuses[1] == 200 and not self._truth) or (statuses[1] == 503 and ready_is_due):
            world.broken(
                f"/readyz says {ready.body}, and the browser's being well is {self._truth}"
            )
