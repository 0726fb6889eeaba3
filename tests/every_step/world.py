"""A running daemon that is struck again and again, and what it has to be like after each strike.

It is the one of the fault matrix (`tests/faults/stage.py`): a fake Chromium, the sandbox's portal,
fake workers, a mock clock, no thread. Since one daemon takes all strikes of a scenario, a lock or a
place that is not given back is missing for the next, and what is left behind adds up.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from smartlinkd.auth import passwords
from smartlinkd.browser.limits import BrowserLimits
from smartlinkd.crews.model import ExecutorLimits
from smartlinkd.sandbox.session import affiliate_id
from tests.every_step.parts import RESTARTED, Parts
from tests.every_step.strike import Strike
from tests.fakes.gate import Gate
from tests.faults.door import Asked
from tests.faults.phases import SUBMIT
from tests.faults.stage import BROWSER_LIMITS, Stage, comes_about

PASSWORD = "the right one"
SOON = 20.0
"""Seconds in which a start, a restart or an end has come about."""
ENDED = 30.0
"""Seconds in which an answer or an end has come, whatever has failed meanwhile."""
SERVED = 1.0
"""Seconds for the next request, the loading of a page included."""
SOME = 4
"""One in so many."""
TOLD = ExecutorLimits().last_write_s + RESTARTED + 0.5
"""Seconds in which somebody whose work failed has an answer, be it that the part is there again:
what depends on it ends first, and it is started again."""

Crew = Mapping[str, Any]
StrikeWorld = Callable[..., int]


class World:
    """A daemon on a stage. `account` is one whose page is open."""

    def __init__(self, stage: Stage, parts: Parts) -> None:
        self.stage = stage
        self.parts = parts
        self.account = stage.account()
        self.errors: list[str] = []
        """What was logged as an error, but for the failures that are played."""
        self._strikes = 0
        self._at_rest = Counter[str]()
        self._descriptors = stage.descriptors()

    async def start(self, nursery: trio.Nursery) -> None:
        await nursery.start(self.stage.run)
        await self.stage.until_ready(SOON)
        await self.is_served(self.account)
        await trio.sleep(1.0)
        self._at_rest, self._descriptors = self.stage.tasks(), self.stage.descriptors()

    async def is_served(self, account: str) -> None:
        """The next request of the account works, in time."""
        asked = self.stage.ask(account)
        await asked.good(SOON)
        assert asked.seconds <= SERVED, asked
        got_its_own(asked, account)

    async def serves_on(self, account: str) -> None:
        """The same, after some of many strikes: what one of them has broken stays so."""
        self._strikes += 1
        if self._strikes % SOME == 0:
            await self.is_served(account)

    async def submitting(self) -> tuple[Asked, Gate]:
        """Somebody whose submit the portal does not answer before the gate is open."""
        gate = self.stage.network.hold(SUBMIT)
        asked = self.stage.ask(self.account)
        await gate.reached.wait()
        del self.stage.network.gates[SUBMIT]
        return asked, gate

    async def is_well(self) -> None:
        """Nothing is left of what was struck, and nothing is missing."""
        await wait_all_tasks_blocked()  # what is struck in this very moment notices it first
        await comes_about(lambda: self._found() == self._due(), SOON)
        assert self._found() == self._due(), (self._found(), self._due())
        assert self.stage.descriptors() == self._descriptors
        assert not self.errors, self.errors

    async def has_ended(self) -> None:
        """Nothing of the daemon is left at all."""
        await self.stage.is_gone(SOON)
        assert not self.errors, self.errors

    def _found(self) -> tuple[object, ...]:
        browser = self.stage.browser
        return (
            self.stage.ready,
            self.stage.tasks(),
            self.stage.processes(),
            self.stage.folders(),
            len(self.stage.machine.browser.contexts) if self.stage.machine.running else 0,
            browser.status().working,
            browser.status().waiting,
        )

    def _due(self) -> tuple[object, ...]:
        # A context for each account that is known to have one, and the canary's.
        contexts = self.stage.browser.status().contexts + 1
        return (True, self._at_rest, 1, 1, contexts, 0, 0)


def got_its_own(asked: Asked, account: str) -> None:
    """The answer has exactly the links that were asked for, and this account earns from them."""
    sent = json.loads(asked.exchange.sent)
    assert list(asked.answer["mapping"]) == sent["links"]
    for link, entry in asked.answer["mapping"].items():
        item = link.rpartition("/")[2]
        assert f"/{item}?" in entry["longLink"], entry
        assert f"=an_{affiliate_id(account)}&" in entry["longLink"], entry
        assert f"utm_content={sent['subIds'][0]}-" in entry["longLink"], entry


def was_told(asked: Asked, *statuses: int) -> None:
    """Who waited while a part failed has an answer: one of these, or to come again."""
    assert asked.status in (*statuses, 503), asked
    assert asked.seconds <= TOLD, asked
    if asked.status == 503:
        assert asked.answer["error"], asked
        assert 1 <= int(asked.exchange.answered["retry-after"]) <= 10, asked


async def strike_at(strike: Strike, asked: Asked, death: str, world: World, but: int = 200) -> None:
    """Strike while it is asked: the client leaves, or the part of this name fails. Who waits for a
    part that fails is told something, soon."""
    leaves = asked.exchange.under_way.cancel
    strike.arm(leaves if death == "client" else lambda: world.parts.fail(death))
    with trio.fail_after(ENDED):
        await asked.wait()
    strike.disarm()
    if death != "client":
        was_told(asked, 200, but)


def is_answered(asked: Asked) -> bool:
    return asked.status == 200 and not asked.exchange.fault


@contextmanager
def made_world(
    folder: Path,
    crews: tuple[Crew, ...] = (),
    browser_limits: BrowserLimits = BROWSER_LIMITS,
) -> Iterator[World]:
    """A world whose daemon has not been started. Only inside of trio."""

    with pytest.MonkeyPatch.context() as patch:
        parts = Parts()
        parts.install(patch)
        stage = Stage(folder, patch, crews=crews, look_every=1.0, browser_limits=browser_limits)
        world = World(stage, parts)
        patch.setattr(passwords, "matches", lambda _, password: password == PASSWORD)
        with _errors(world.errors):
            yield world


@contextmanager
def _errors(found: list[str]) -> Iterator[None]:
    """Note what the daemon logs as an error; a thousand records of others are nobody's to read."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if not record.getMessage().endswith(" failed"):
                found.append(self.format(record))

    log, handler = logging.getLogger("smartlinkd"), Handler(logging.ERROR)
    log.addHandler(handler)
    log.propagate, before = False, log.propagate
    try:
        yield
    finally:
        log.propagate = before
        log.removeHandler(handler)


@asynccontextmanager
async def running_world(
    folder: Path, *crews: Crew, browser_limits: BrowserLimits = BROWSER_LIMITS
) -> AsyncIterator[World]:
    """A world whose daemon runs, and leaves nothing when it is stopped at last."""
    with made_world(folder, crews, browser_limits) as world:
        before = world.stage.descriptors()
        async with trio.open_nursery() as nursery:
            await world.start(nursery)
            yield world
            world.stage.stop()
        await world.has_ended()
        assert world.stage.descriptors() == before
