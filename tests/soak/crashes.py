"""Killing, as the kernel does: Chromium's main process, one of its tabs, a worker."""

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
from tests.soak.world import World, Wrong

BACK: Final = 90.0
"""Seconds in which there has to be a browser again: three times the longest wait between two."""
LOOK_EVERY: Final = 0.1


async def crash(world: World, http: httpx.AsyncClient, job: Crash) -> None:
    """Kill somebody, and wait until all is well again. One at a time. Raises `Wrong`."""
    async with world.killing:
        match job.victim:
            case Victim.CHROMIUM:
                await _kill_chromium(world, http)
            case Victim.TAB:
                await _kill_tab(world, http, job.place)
            case Victim.WORKER:
                await kick_off(world, http, Kickoff(End.KILL, 0, webhooks=False, refused=False))
                world.book.also["killed: worker"] += 1


async def _kill_chromium(world: World, http: httpx.AsyncClient) -> None:
    before = (await world.status(http))["browser"]
    if not before["ready"]:
        return
    async with world.striking():
        os.kill(before["pid"], signal.SIGKILL)
        world.book.also["killed: chromium"] += 1
        with trio.move_on_after(BACK):
            while True:
                browser = (await world.status(http))["browser"]
                if browser["ready"] and browser["pid"] != before["pid"]:
                    world.book.done[Kind.CRASH] += 1
                    return
                await trio.sleep(LOOK_EVERY)
        raise Wrong(f"no browser within {BACK:g} s of the last one's end: {browser}")


async def _kill_tab(world: World, http: httpx.AsyncClient, place: float) -> None:
    browser = (await world.status(http))["browser"]
    # The first is the daemon's own: its end would be the browser's.
    tabs = renderers(browser["pid"])[1:]
    if not browser["ready"] or not tabs:
        return
    async with world.striking():
        with suppress(ProcessLookupError):  # it has been closed since
            os.kill(tabs[int(place * len(tabs))], signal.SIGKILL)
            world.book.done[Kind.CRASH] += 1
            world.book.also["killed: tab"] += 1
