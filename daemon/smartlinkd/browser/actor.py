"""The browser actor: keeps a Chromium up, says honestly whether it is, and lets work be done on it.

Chromium's failures are everyday events and not this actor's: it launches the next generation, at
once after a healthy minute and with growing waits otherwise, for as long as the daemon lives.
Meanwhile nobody waits: work is refused as `BrowserNotReady`, since the caller knows best whether to
come again. Work that was under way ends with an error of its own as its calls fail.

The actor knows nothing of the marketplace. What is to be done on a page comes as a function.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, TypeVar

import trio

from smartlinkd.browser.contexts import Place
from smartlinkd.browser.generation import End, EndKind, Generation, GenerationSettings
from smartlinkd.browser.page import Page
from smartlinkd.browser.upkeep import TellDown, Upkeep
from smartlinkd.errors import Refused, Unavailable
from smartlinkd.logs import LogEvent
from smartlinkd.metrics import LATE, histogram
from smartlinkd.supervision.actor import Mailbox
from smartlinkd.supervision.heartbeat import Heartbeat
from smartlinkd.supervision.policy import Backoff

logger = logging.getLogger(__name__)

R = TypeVar("R")

JOBS_AT_ONCE = 16
"""Pieces of work under way at the same time, over all accounts."""

LEAST_QUEUE = 2 * JOBS_AT_ONCE
"""Pieces of work that may wait however short the queue is to be. What comes in one moment waits
before the first of it is begun, also while nothing is under way: an account that has its links made
asks for a submit and three readings at once, and what is refused of these is a product without its
data."""

FIRST_STEPS = 45.0
"""Seconds beyond `start_timeout` that a launch may take to its first beat, or to be cleared away:
the deadlines of what is asked of a new browser, added up."""

LOOK_EVERY = 5.0
"""Seconds between two looks at a browser that is up."""

_LAUNCH_FAILED = "launch failed"


class BrowserNotReady(Unavailable):
    """No browser to work with at the moment."""


class BrowserState(StrEnum):
    """The browser's lifecycle, as people and monitors see it."""

    STARTING = "starting"
    READY = "ready"
    UNRESPONSIVE = "unresponsive"  # up, but its canary misses beats
    WAITING = "waiting"  # down, the next launch comes after a wait


@dataclass(frozen=True)
class BrowserStatus:
    """The browser as it is now. `last_end` says why it was restarted the last time."""

    state: BrowserState
    ready: bool
    since: datetime
    version: str | None
    pid: int | None
    restarts: int
    last_end: str | None
    working: int
    waiting: int
    contexts: int


class Browser:
    """What others hold: `use` it, and ask whether it is `ready`."""

    def __init__(
        self,
        settings: GenerationSettings,
        *,
        queue: int,
        backoff: Backoff,
        down: TellDown,
        chance: random.Random | None = None,
    ) -> None:
        """`queue` pieces of work may wait, but never fewer than `LEAST_QUEUE`. `down` is told when
        Chromium cannot be kept up, and when it can be again."""
        self.mailbox = Mailbox[_Browser]("browser", size=max(queue, LEAST_QUEUE))
        self.heartbeat = Heartbeat(_not_idle, of="upkeep")
        """Of the loop that keeps Chromium up, which goes round by itself."""
        self._settings = settings
        self._backoff = backoff
        self._chance = chance or random.Random()  # noqa: S311 - spreads waits, guards nothing
        self._upkeep = Upkeep(down)
        self._instance: _Browser | None = None
        self.restarts: dict[str, int] = dict.fromkeys(EndKind, 0) | {_LAUNCH_FAILED: 0}
        self.down = histogram(
            "browser_down", "From a Chromium's end, or the start, to the next", buckets=LATE
        )

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """One instance. Serving begins before Chromium is up: `ready` says when it is."""
        browser = _Browser(
            self._settings,
            self._backoff,
            self._chance,
            self.restarts,
            upkeep=self._upkeep,
            heartbeat=self.heartbeat,
            was_down=self.down.observe,
        )
        self._instance = browser
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(browser.keep_up)
                task_status.started()
                await self.mailbox.serve(browser, at_once=JOBS_AT_ONCE)
        finally:
            self._instance = None

    @property
    def ready(self) -> bool:
        """A page has really been able to run script within the last few seconds."""
        return self._instance is not None and self._instance.ready

    def status(self) -> BrowserStatus:
        """For health, metrics and status: a look that waits for nobody."""
        browser = self._instance
        generation = browser.generation if browser else None
        if generation is not None and generation.dead:
            generation = None  # the next one is not up yet
        return BrowserStatus(
            state=browser.state if browser else BrowserState.WAITING,
            ready=self.ready,
            since=browser.since if browser else datetime.now(UTC),
            version=generation.version if generation else None,
            pid=generation.pid if generation else None,
            restarts=sum(self.restarts.values()),
            last_end=browser.last_end if browser else None,
            working=generation.working if generation else 0,
            waiting=self.mailbox.waiting,
            contexts=generation.warm_contexts if generation else 0,
        )

    async def use(self, place: Place, job: Callable[[Page], Awaitable[R]]) -> R:
        """Do `job` on the tab of `place`.

        Raises `BrowserNotReady` at once when there is no browser to do it on, `Overloaded` when too
        much waits, and what `job` raises. A job that is cancelled spoils its tab and nothing else.
        """
        if not self.ready:
            raise _not_ready(self.status())
        return await self.mailbox.ask(_Browser.use, place, job)


class _Browser:
    def __init__(
        self,
        settings: GenerationSettings,
        backoff: Backoff,
        chance: random.Random,
        restarts: dict[str, int],
        *,
        upkeep: Upkeep,
        heartbeat: Heartbeat,
        was_down: Callable[[float], None],
    ) -> None:
        self._settings = settings
        self._backoff = backoff
        self._chance = chance
        self._restarts = restarts
        self._upkeep = upkeep
        self._pulse = heartbeat
        self._was_down = was_down
        self._down_since = trio.current_time()
        self._waiting = False
        self._at_once = trio.Event()
        """There is a reason not to wait any longer for the next launch."""
        self.generation: Generation | None = None
        self.since = datetime.now(UTC)
        self.last_end: str | None = None

    @property
    def ready(self) -> bool:
        return self.generation is not None and self.generation.ready

    @property
    def state(self) -> BrowserState:
        if self.ready:
            return BrowserState.READY
        if self.generation is not None and not self.generation.dead:
            return BrowserState.UNRESPONSIVE
        return BrowserState.WAITING if self._waiting else BrowserState.STARTING

    async def use(self, place: Place, job: Callable[[Page], Awaitable[R]]) -> R:
        if self.generation is None or not self.generation.ready:
            raise BrowserNotReady("the browser has just ended; try again shortly", retry_after=2)
        return await self.generation.use(place, job)

    async def keep_up(self) -> None:
        """One generation after the other, until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                generation = Generation(self._settings)
                self._pulse.touch(self._settings.launch.start_timeout + FIRST_STEPS)
                try:
                    await nursery.start(generation.run)
                except Refused as refusal:
                    why = f"{_LAUNCH_FAILED}: {refusal}"
                    self._count(_LAUNCH_FAILED, why)
                    await self._wait(why)
                    continue
                await self._live(generation)
                if self.generation is generation:  # recycled: it serves until the next one does
                    nursery.start_soon(self._see_out, generation)

    async def _live(self, generation: Generation) -> None:
        """Use this generation until it has ended or the next one should be prepared."""
        # A recycled one has served until now.
        if self.generation is not None:
            self.generation.retire()
        else:
            self._was_down(trio.current_time() - self._down_since)
        self.generation, self.since = generation, datetime.now(UTC)
        what = (generation.version, generation.pid)
        logger.info("the browser is ready: %s, pid %d", *what, extra=LogEvent.BROWSER_READY())
        with trio.move_on_after(self._backoff.healthy) as early:
            await self._watch(generation)
        healthy = early.cancelled_caught
        if healthy:
            self._upkeep.steady()
        end = await self._watch(generation)
        self._count(end.kind, str(end))
        if end.kind is EndKind.RECYCLED:
            self._upkeep.steady()
            return
        generation.retire()
        self._is_gone()
        if not healthy:  # else the next launch is at once
            await self._wait(str(end))

    async def _see_out(self, recycled: Generation) -> None:
        """It may die before the next one is there, which then is not to be waited for."""
        await recycled.wait_finished()
        if self.generation is recycled and recycled.end is not None:
            self._count(recycled.end.kind, str(recycled.end))
            self._is_gone()
            self._at_once.set()

    def _is_gone(self) -> None:
        self.generation, self.since = None, datetime.now(UTC)
        self._down_since = trio.current_time()

    async def _watch(self, generation: Generation) -> End:
        """Wait for its end. One that is neither ready nor at its end for long is no sign of life:
        its own canary ends it within seconds, and should be seen to."""
        while True:
            if generation.ready:
                self._pulse.touch()
            with trio.move_on_after(LOOK_EVERY):
                return await generation.wait_ended()

    def _count(self, kind: str, text: str) -> None:
        self._restarts[kind] += 1
        self.last_end = text
        logger.warning("the browser is restarted: %s", text, extra=LogEvent.BROWSER_RESTARTED())

    async def _wait(self, why: str) -> None:
        self._upkeep.failed(why, another_serves=self.ready)
        self._waiting = True
        self._at_once = trio.Event()
        wait = self._backoff.wait(self._upkeep.failures, self._chance)
        self._pulse.touch(wait)
        try:
            with trio.move_on_after(wait):
                await self._at_once.wait()
        finally:
            self._waiting = False


def _not_idle() -> None:
    """The loop need not be prompted."""


_NOT_READY: Final = {
    BrowserState.WAITING: "down, and about to be started again",
    BrowserState.UNRESPONSIVE: "not answering at the moment",
}


def _not_ready(status: BrowserStatus) -> BrowserNotReady:
    state = _NOT_READY.get(status.state, status.state)
    text = f"the browser is {state}; try again in a few seconds"
    if status.last_end is not None and status.last_end.startswith(_LAUNCH_FAILED):
        text += "; if this goes on, `smartlinkd doctor` says what is wrong"
    return BrowserNotReady(text, retry_after=2)
