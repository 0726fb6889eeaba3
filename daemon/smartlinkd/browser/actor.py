"""The browser actor: keeps a Chromium running, reports its state, and lets callers use its tabs.

Chromium's ends are everyday events and do not end the actor. It launches the next one, at once
after a healthy minute and with growing waits otherwise. Meanwhile no caller waits: jobs are refused
with `BrowserNotReady`, and those under way fail as their calls do. An end of the actor itself ends
its Chromium, and the supervisor starts both anew. The actor knows nothing of the marketplace; a job
comes as a function.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, TypeVar

import trio

from smartlinkd.browser.errors import BrowserNotReady
from smartlinkd.browser.instance import BrowserInstance, End, EndKind, InstanceSettings
from smartlinkd.browser.page import Page
from smartlinkd.browser.tab_pool import TabSpec
from smartlinkd.errors import Refused
from smartlinkd.logs import LogEvent
from smartlinkd.metrics import LATE, histogram
from smartlinkd.supervision.actor import Mailbox
from smartlinkd.supervision.heartbeat import Heartbeat
from smartlinkd.supervision.policy import Backoff

logger = logging.getLogger(__name__)

R = TypeVar("R")

DownListener = Callable[[str | None], None]
"""Called with the reason why Chromium cannot be kept running, or with None when it runs again."""


class BrowserState(StrEnum):
    """The browser's lifecycle, as people and monitors see it."""

    STARTING = "starting"
    READY = "ready"
    UNRESPONSIVE = "unresponsive"  # it runs, but its probe page fails
    WAITING = "waiting"  # it is down, and the next launch comes after a wait


@dataclass(frozen=True)
class BrowserStatus:
    """The browser as it is now. `since` is when Chromium last became ready, or ended."""

    state: BrowserState
    ready: bool
    since: datetime
    version: str | None
    pid: int | None
    restarts: int
    last_restart_reason: str | None
    jobs_running: int
    jobs_waiting: int
    contexts: int


class Browser:
    """The browser actor, its handle and its state.

    Args:
        queue: jobs that may wait, but never fewer than `BrowserLimits.min_queue`.
        on_down: called when Chromium cannot be kept running, and when it runs again.
    """

    def __init__(
        self,
        settings: InstanceSettings,
        *,
        queue: int,
        backoff: Backoff,
        on_down: DownListener,
    ) -> None:
        self.mailbox = Mailbox[Browser]("browser", size=max(queue, settings.limits.min_queue))
        # Of the loop that keeps Chromium running. It comes round by itself and needs no probe.
        self.heartbeat = Heartbeat(lambda: None, of="upkeep")
        self.restarts: dict[str, int] = dict.fromkeys(EndKind, 0)
        self.downtime = histogram(
            "browser_down", "From a Chromium's end, or the start, to the next", buckets=LATE
        )
        self._settings = settings
        self._backoff = backoff
        self._on_down = on_down
        self._failures = 0  # early ends in a row
        self._is_down = False  # as `on_down` was told
        self._instance: BrowserInstance | None = None
        self._since = datetime.now(UTC)
        self._down_since = 0.0  # on trio's clock
        self._last_end: str | None = None
        self._is_waiting = True

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """Run the actor. It serves before Chromium is up, and refuses jobs until then."""
        self._note_down()
        self._is_waiting = False
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._keep_running)
                task_status.started()
                await self.mailbox.serve(self, at_once=self._settings.limits.concurrent_jobs)
        finally:
            self._note_down()
            self._is_waiting = True

    @property
    def is_ready(self) -> bool:
        """True if a page has been able to run script within the last few seconds."""
        return self._instance is not None and self._instance.is_ready

    def status(self) -> BrowserStatus:
        """Return the state for health, metrics and status. Waits for nothing."""
        instance = self._instance
        if instance is not None and instance.is_dead:
            instance = None  # the next one is not up yet
        return BrowserStatus(
            state=self._state(),
            ready=self.is_ready,
            since=self._since,
            version=instance.version if instance else None,
            pid=instance.pid if instance else None,
            restarts=sum(self.restarts.values()),
            last_restart_reason=self._last_end,
            jobs_running=instance.working if instance else 0,
            jobs_waiting=self.mailbox.waiting,
            contexts=instance.contexts if instance else 0,
        )

    async def use(self, spec: TabSpec, job: Callable[[Page], Awaitable[R]]) -> R:
        """Do `job` on a tab, and return its result.

        A job that is cancelled invalidates the tab's context and nothing else.

        Raises:
            BrowserNotReady: there is no browser at the moment. Raised at once.
            Overloaded: too many jobs wait.
            Refused: `job` raised one; `BrowserFailed` when a call to the browser failed.
            ActorRestarting: `job`, or another one, raised anything else, which ends the actor.
            ActorGone: the daemon stops.
        """
        if not self.is_ready:
            raise _not_ready(self.status())
        return await self.mailbox.ask(Browser._use, spec, job)

    async def _use(self, spec: TabSpec, job: Callable[[Page], Awaitable[R]]) -> R:
        if self._instance is None or not self._instance.is_ready:
            raise BrowserNotReady("the browser has just ended; try again shortly", retry_after=2)
        return await self._instance.use(spec, job)

    def _state(self) -> BrowserState:
        if self.is_ready:
            return BrowserState.READY
        if self._instance is not None and not self._instance.is_dead:
            return BrowserState.UNRESPONSIVE
        return BrowserState.WAITING if self._is_waiting else BrowserState.STARTING

    async def _keep_running(self) -> None:
        """Launch one instance after the other, until cancelled."""
        launch_s = self._settings.launch.start_timeout + self._settings.limits.first_steps_s
        async with trio.open_nursery() as nursery:
            while True:
                instance = BrowserInstance(self._settings)
                self.heartbeat.touch(launch_s)
                try:
                    await nursery.start(instance.run)
                except Refused as refusal:
                    if self._instance is not None and self._instance.is_dead:  # it was recycled
                        self._note_down()
                    end = End(EndKind.LAUNCH_FAILED, str(refusal))
                    self._record_restart(end)
                    await self._wait(end)
                    continue
                await self._serve(instance)

    async def _serve(self, instance: BrowserInstance) -> None:
        """Use this instance until it has ended, or the next one should be launched."""
        if self._instance is not None:  # recycled, and in use until now
            self._instance.drain()
        else:
            self.downtime.observe(trio.current_time() - self._down_since)
        self._instance, self._since = instance, datetime.now(UTC)
        what = (instance.version, instance.pid)
        logger.info("the browser is ready: %s, pid %d", *what, extra=LogEvent.BROWSER_READY())
        with trio.move_on_after(self._backoff.healthy) as scope:
            await self._wait_ended(instance)
        is_healthy = scope.cancelled_caught
        if is_healthy:
            self._record_healthy()
        end = await self._wait_ended(instance)
        self._record_restart(end)
        if end.kind is EndKind.RECYCLED:  # it serves until the next one does
            self._record_healthy()
            return
        instance.drain()
        self._note_down()
        if not is_healthy:  # else the next launch is at once
            await self._wait(end)

    def _note_down(self) -> None:
        self._instance, self._since = None, datetime.now(UTC)
        self._down_since = trio.current_time()

    async def _wait_ended(self, instance: BrowserInstance) -> End:
        # An instance that is not ready ends itself within seconds. If it does not, this loop must
        # not look alive.
        while True:
            if instance.is_ready:
                self.heartbeat.touch()
            with trio.move_on_after(self._settings.limits.poll_interval_s):
                return await instance.wait_ended()

    def _record_restart(self, end: End) -> None:
        self.restarts[end.kind] += 1
        self._last_end = str(end)
        logger.warning("the browser is restarted: %s", end, extra=LogEvent.BROWSER_RESTARTED())

    async def _wait(self, end: End) -> None:
        """Wait before the next launch."""
        self._record_failure(str(end))
        self._is_waiting = True
        wait_s = self._backoff.wait(self._failures)
        self.heartbeat.touch(wait_s)
        try:
            await trio.sleep(wait_s)
        finally:
            self._is_waiting = False

    def _record_failure(self, why: str) -> None:
        """Count a Chromium that ended early or did not start. Report once that there are too many,
        unless a recycled one still serves."""
        self._failures += 1
        is_too_often = self._failures >= self._settings.limits.failures_before_alarm
        if is_too_often and not self._is_down and not self.is_ready:
            self._is_down = True
            text = "Chromium cannot be kept up: it ended %d times in a row, the last time by: %s"
            logger.error(text, self._failures, why, extra=LogEvent.BROWSER_DOWN())
            self._on_down(why)

    def _record_healthy(self) -> None:
        """Start counting anew: a Chromium has run for a healthy time, or is recycled."""
        self._failures = 0
        if self._is_down:
            self._is_down = False
            logger.warning("Chromium stays up again", extra=LogEvent.BROWSER_BACK())
            self._on_down(None)


_STATE_TEXTS: Final = {
    BrowserState.WAITING: "down, and about to be started again",
    BrowserState.UNRESPONSIVE: "not answering at the moment",
}


def _not_ready(status: BrowserStatus) -> BrowserNotReady:
    state = _STATE_TEXTS.get(status.state, status.state)
    text = f"the browser is {state}; try again in a few seconds"
    if (status.last_restart_reason or "").startswith(EndKind.LAUNCH_FAILED):
        text += "; if this goes on, `smartlinkd doctor` says what is wrong"
    return BrowserNotReady(text, retry_after=2)
