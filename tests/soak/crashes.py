"""The crashes of a soak: SIGKILL for Chromium's main process, a tab or a worker."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import Final

import httpx
import trio

from tests.soak.jobs import Crash, Kickoff, Kind, Victim
from tests.soak.kickoffs import kick_off
from tests.soak.samples import renderers
from tests.soak.worker import End
from tests.soak.world import UnexpectedAnswer, World

RESTART_DEADLINE: Final = 90.0
"""Seconds from a kill to a new browser: three times the longest restart delay."""
POLL_INTERVAL: Final = 0.1


async def crash(world: World, http: httpx.AsyncClient, job: Crash) -> None:
    """Kill a process, and wait for the recovery. Only one crash happens at a time.

    Raises:
        UnexpectedAnswer: No new browser was started in time.
    """
    async with world.kill_lock:
        match job.victim:
            case Victim.CHROMIUM:
                await _kill_chromium(world, http)
            case Victim.TAB:
                await _kill_tab(world, http, job.place)
            case Victim.WORKER:
                await kick_off(
                    world, http, Kickoff(End.KILL, 0, webhooks=False, first_call_refused=False)
                )
                world.results.other_counts["killed: worker"] += 1


async def _kill_chromium(world: World, http: httpx.AsyncClient) -> None:
    before = (await world.status(http))["browser"]
    if not before["ready"]:
        return
    async with world.disruption():
        os.kill(before["pid"], signal.SIGKILL)
        world.results.other_counts["killed: chromium"] += 1
        with trio.move_on_after(RESTART_DEADLINE):
            while True:
                browser = (await world.status(http))["browser"]
                if browser["ready"] and browser["pid"] != before["pid"]:
                    world.results.jobs_done[Kind.CRASH] += 1
                    return
                await trio.sleep(POLL_INTERVAL)
        raise UnexpectedAnswer(
            f"no browser within {RESTART_DEADLINE:g} s after the last one was killed: {browser}"
        )


async def _kill_tab(world: World, http: httpx.AsyncClient, place: float) -> None:
    browser = (await world.status(http))["browser"]
    # The first tab is the daemon's canary. Without it the daemon would restart the browser.
    tabs = renderers(browser["pid"])[1:]
    if not browser["ready"] or not tabs:
        return
    async with world.disruption():
        with suppress(ProcessLookupError):  # the daemon has closed the tab
            os.kill(tabs[int(place * len(tabs))], signal.SIGKILL)
            world.results.jobs_done[Kind.CRASH] += 1
            world.results.other_counts["killed: tab"] += 1
