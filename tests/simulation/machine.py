"""The machines below Chromium and below workers, as the simulation has them.

A day has 86,400 beats of the canary, three exchanges each, and nearly all of a healthy browser that
nobody looks at. So nineteen of twenty beats of a browser that is well are answered on the spot;
when anything is wrong with it, each is really made. And while nobody is there at all, and nothing
can go wrong, it beats every fourth second: the daemon's own bound for a fresh beat is five.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from smartlinkd.browser import instance
from smartlinkd.browser.cdp import CALL_DEADLINE
from smartlinkd.browser.limits import BrowserLimits
from smartlinkd.browser.page import Page
from smartlinkd.processes.reaper import CommandSpec
from tests.fakes import machine, workers
from tests.fakes.chromium import FakeChromium
from tests.fakes.network import Json, Network
from tests.simulation.executions import Executions
from tests.simulation.upstream import VARIANT

AS_USUAL = BrowserLimits().probe_interval_s
SLOWLY = 4.0
REALLY = 0.05
OF_A_BEAT = "Runtime.evaluate"


class Machine(machine.Machine):
    """The one below Chromium. `broken` is told what is wrong."""

    broken: Callable[[str], None]

    def __init__(self, folder: Path, network: Network, chance: random.Random) -> None:
        super().__init__(folder, network)
        self._chance = chance
        self._is_quiet = False
        self._up: set[int] = set()  # browsers that have said where they listen, by pid
        self.prepare = self._note_up

    def install(self, patch: pytest.MonkeyPatch) -> None:
        super().install(patch)
        probe = instance.probe

        async def sometimes(canary: Page, *, timeout_s: float) -> None:
            if self._is_quiet and timeout_s != CALL_DEADLINE:  # which the first of a browser has
                await trio.sleep(SLOWLY - AS_USUAL)
            if self._chance.random() < REALLY or not self.can_beat(canary):
                await probe(canary, timeout_s=timeout_s)

        patch.setattr(instance, "probe", sometimes)
        patch.setattr(machine, "FakeChromium", self._watched)

    def be_quiet(self, quiet: bool) -> None:
        """Note that nobody is there, or that somebody is again."""
        self._is_quiet = quiet

    def heal(self) -> None:
        super().heal()
        self.prepare = self._note_up

    def calm_down(self) -> None:
        """Nothing is wrong with browsers that run. A page in an endless loop is closed: nothing
        tells of it, so it would cost whoever comes next an answer."""
        for process in self.running:
            if process.pid in self._up:
                process.browser.resume()
                process.browser.delay_answer("", 0.0)
                for tab in process.browser.tabs.values():
                    if tab.spinning:
                        tab.crash()

    def _note_up(self, browser: FakeChromium) -> None:
        self._up.add(browser.pid)

    def _watched(self, *args: Any) -> FakeChromium:
        return _Watched(self, *args)

    def can_beat(self, canary: Page) -> bool:
        """Whether a line of script would come back from there at once: its browser runs script,
        and the daemon can see it."""
        for process in self.running:
            if process.status is None and process.pid in self._up:
                browser = process.browser
                tab = browser.tabs.get(canary.target_id)
                if tab is not None and tab.attached:
                    return (
                        browser.answers_at_once(OF_A_BEAT)
                        and not (tab.silent or tab.dialog)
                        and not any(wire.is_reset for wire in process.wires)
                    )
        return False

    def make_profile_folder(self, parent: Path, _: object) -> Path:
        return super().make_profile_folder(self.profiles, parent)

    async def _memory_of(self, *_: object) -> int:
        await trio.lowlevel.checkpoint()
        memory, self.memory = self.memory, 100 << 20
        return memory


class _Watched(FakeChromium):
    """One whose contexts are looked at."""

    def __init__(self, machine: Machine, *args: Any) -> None:
        super().__init__(*args)
        self._machine = machine

    def set_cookies(self, params: Json) -> Json:
        before = self.contexts.get(params["browserContextId"])
        if before:
            old, new = _whose(before), _whose(params["cookies"])
            if old != new:
                self._machine.broken(f"a context with the cookies of {old} got those of {new}")
        return super().set_cookies(params)


def _whose(cookies: list[Json]) -> tuple[str, ...]:
    """All of them, of one domain each: who owns them."""
    values = {cookie["name"]: cookie["value"] for cookie in cookies}
    return values.get("SPC_U", ""), values.get(VARIANT, "")


class Workers(workers.Workers):
    """The one below workers: each start is looked at."""

    def __init__(self, folder: Path, executions: Executions) -> None:
        super().__init__(folder)
        self._executions = executions

    def fork_reaper(self, spec: CommandSpec, *descriptors: int) -> Callable[[], None]:
        kill = super().fork_reaper(spec, *descriptors)
        reaper = self.reapers[-1]
        crew = reaper.command[-1]
        running = sum(each.command[-1] == crew for each in self.reapers)
        self._executions.worker_started(crew, reaper.execution, running)
        return kill
