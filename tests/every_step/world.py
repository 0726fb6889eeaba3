"""A running daemon that is struck repeatedly, and the checks after each strike.

It is the daemon of the fault matrix (`tests/faults/stage.py`). One daemon takes all strikes of a
scenario, so a lock or a slot that is never released fails a later check, and leaks add up.
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
from smartlinkd.errors import leaves
from smartlinkd.sandbox.session import affiliate_id
from tests.every_step.parts import RESTARTED, Failed, Parts
from tests.every_step.strike import Strike
from tests.fakes.gate import Gate
from tests.faults.phases import SUBMIT
from tests.faults.sockets import SentRequest
from tests.faults.stage import BROWSER_LIMITS, Stage, wait_until

PASSWORD = "the right one"
SOON = 20.0
"""Seconds until a start, a restart or an end is complete."""
ENDED = 30.0
"""Seconds until an answer or an end, whatever fails meanwhile."""
SERVED = 1.0
"""Seconds of the next request, including the load of a page."""
SERVED_EVERY = 4
"""One strike of so many is followed by a request."""
FAILURE_ANSWERED = ExecutorLimits().last_write_s + RESTARTED + 0.5
"""Seconds until a client has an answer when a part fails: the parts that depend on it end first,
and the part restarts."""

Crew = Mapping[str, Any]
StrikeWorld = Callable[..., int]


class World:
    """A daemon on a stage. The page of `account` is open."""

    def __init__(self, stage: Stage, parts: Parts) -> None:
        self.stage = stage
        self.parts = parts
        self.account = stage.account()
        self.errors: list[str] = []
        """Error records, without those of the strikes."""
        self._strikes = 0
        self._at_rest = Counter[str]()
        self._descriptors = stage.descriptors()

    async def start(self, nursery: trio.Nursery) -> None:
        await nursery.start(self.stage.run)
        await self.stage.until_ready(SOON)
        await self.check_served(self.account)
        await trio.sleep(1.0)
        self._at_rest, self._descriptors = self.stage.tasks(), self.stage.descriptors()

    async def check_served(self, account: str) -> None:
        """Check that the account's next request succeeds in time."""
        asked = self.stage.ask(account)
        await asked.expect_ok(SOON)
        assert asked.seconds <= SERVED, asked
        check_links(asked, account)

    async def check_served_sometimes(self, account: str) -> None:
        """Do `check_served` after one strike in SERVED_EVERY: damage would stay."""
        self._strikes += 1
        if self._strikes % SERVED_EVERY == 0:
            await self.check_served(account)

    async def hold_submit(self) -> tuple[SentRequest, Gate]:
        """Return a request and the gate that holds its submit at the portal."""
        gate = self.stage.network.hold(SUBMIT)
        asked = self.stage.ask(self.account)
        await gate.reached.wait()
        del self.stage.network.gates[SUBMIT]
        return asked, gate

    async def check_clean(self) -> None:
        """Check that the daemon has the same resources as before the strikes."""
        await wait_all_tasks_blocked()  # deliver the cancellations of the last strike first
        await wait_until(lambda: self._found() == self._due(), SOON)
        assert self._found() == self._due(), (self._found(), self._due())
        assert self.stage.descriptors() == self._descriptors
        assert not self.errors, self.errors

    async def check_ended(self) -> None:
        """Check that the daemon has ended and left nothing."""
        await self.stage.wait_gone(SOON)
        assert not self.errors, self.errors

    def _found(self) -> tuple[object, ...]:
        browser = self.stage.browser
        return (
            self.stage.ready,
            self.stage.tasks(),
            self.stage.processes(),
            self.stage.folders(),
            len(self.stage.machine.browser.contexts) if self.stage.machine.running else 0,
            browser.status().jobs_running,
            browser.status().jobs_waiting,
        )

    def _due(self) -> tuple[object, ...]:
        # One context an account that is known to have one, and the canary's.
        contexts = self.stage.browser.status().contexts + 1
        return (True, self._at_rest, 1, 1, contexts, 0, 0)


def check_links(asked: SentRequest, account: str) -> None:
    """Check that the answer has exactly the requested links, with this account's affiliate id."""
    sent = json.loads(asked.exchange.request_body)
    assert list(asked.answer["mapping"]) == sent["links"]
    for link, entry in asked.answer["mapping"].items():
        item = link.rpartition("/")[2]
        assert f"/{item}?" in entry["longLink"], entry
        assert f"=an_{affiliate_id(account)}&" in entry["longLink"], entry
        assert f"utm_content={sent['subIds'][0]}-" in entry["longLink"], entry


def check_failure_answer(asked: SentRequest, *statuses: int) -> None:
    """Check the answer after a part's failure: in time, with one of these statuses or 503."""
    assert asked.status in (*statuses, 503), asked
    assert asked.seconds <= FAILURE_ANSWERED, asked
    if asked.status == 503:
        assert asked.answer["error"], asked
        assert 1 <= int(asked.exchange.response_headers["retry-after"]) <= 10, asked


async def strike_at(
    strike: Strike, asked: SentRequest, target: str, world: World, but: int = 200
) -> None:
    """Strike during the request: its client leaves, or the part named `target` fails.

    If a part fails, the client must get an answer: 200, `but`, or 503.
    """
    leaves = asked.exchange.under_way.cancel
    strike.arm(leaves if target == "client" else lambda: world.parts.fail(target))
    with trio.fail_after(ENDED):
        await asked.wait()
    strike.disarm()
    if target != "client":
        check_failure_answer(asked, 200, but)


def is_answered(asked: SentRequest) -> bool:
    return asked.status == 200 and not asked.exchange.fault


@contextmanager
def made_world(
    folder: Path,
    crews: tuple[Crew, ...],
    browser_limits: BrowserLimits = BROWSER_LIMITS,
) -> Iterator[World]:
    """Yield a world whose daemon has not been started. Needs a running trio."""

    with pytest.MonkeyPatch.context() as patch:
        parts = Parts()
        parts.install(patch)
        stage = Stage(folder, patch, crews=crews, poll_interval=1.0, browser_limits=browser_limits)
        world = World(stage, parts)
        patch.setattr(passwords, "matches", lambda _, password: password == PASSWORD)
        with _errors(world.errors):
            yield world


def _is_strike(error: BaseException | None) -> bool:
    """True if struck parts raised all of the error."""
    if isinstance(error, BaseExceptionGroup):
        return all(isinstance(leaf, Failed) for leaf in leaves(error))
    return isinstance(error, Failed)


@contextmanager
def _errors(found: list[str]) -> Iterator[None]:
    """Collect the daemon's error records; keep all its records from pytest's handlers."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if not _is_strike(record.exc_info[1] if record.exc_info else None):
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
    """Yield a world with a running daemon; stop it at the end and check that nothing is left."""
    with made_world(folder, crews, browser_limits) as world:
        before = world.stage.descriptors()
        async with trio.open_nursery() as nursery:
            await world.start(nursery)
            yield world
            world.stage.stop()
        await world.check_ended()
        assert world.stage.descriptors() == before
