"""The fake machines below Chromium and below workers, with checks and with fewer probes.

A day has 86,400 probes of the browser. A probe of a healthy browser succeeds at once in 19 of 20
cases, without DevTools messages. While no client is active, probes are four seconds apart.
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

PROBE_INTERVAL = BrowserLimits().probe_interval_s
IDLE_PROBE_INTERVAL = 4.0
REAL_PROBE_SHARE = 0.05
PROBE_METHOD = "Runtime.callFunctionOn"


class Machine(machine.Machine):
    """The machine below Chromium. `fail` takes a description of what is wrong."""

    fail: Callable[[str], None]

    def __init__(self, folder: Path, network: Network, chance: random.Random) -> None:
        super().__init__(folder, network)
        self._chance = chance
        self.is_idle = False
        """True while clients are inactive, so that probes may be rare."""
        self._listening: set[int] = set()  # the pids of browsers that have printed their address
        self.prepare = self._note_listening

    def install(self, patch: pytest.MonkeyPatch) -> None:
        super().install(patch)
        probe = instance.probe

        async def probe_or_skip(canary: Page, *, timeout_s: float) -> None:
            if self.is_idle and timeout_s != CALL_DEADLINE:  # a browser's first probe has it
                await trio.sleep(IDLE_PROBE_INTERVAL - PROBE_INTERVAL)
            if self._chance.random() < REAL_PROBE_SHARE or not self.would_answer_probe(canary):
                await probe(canary, timeout_s=timeout_s)

        patch.setattr(instance, "probe", probe_or_skip)
        patch.setattr(machine, "FakeChromium", self._make_browser)

    def heal(self) -> None:
        super().heal()
        self.prepare = self._note_listening

    def heal_running_browsers(self) -> None:
        """End the faults of browsers that run.

        A page in an endless loop crashes: the daemon cannot see the loop, so the next conversion
        would fail.
        """
        for process in self.running:
            if process.pid in self._listening:
                process.browser.resume()
                process.browser.delay_answer("", 0.0)
                for tab in process.browser.tabs.values():
                    if tab.spinning:
                        tab.crash()

    def _note_listening(self, browser: FakeChromium) -> None:
        self._listening.add(browser.pid)

    def _make_browser(self, *args: Any) -> FakeChromium:
        return _CheckedChromium(self, *args)

    def would_answer_probe(self, canary: Page) -> bool:
        """True if a script in the canary page would return at once."""
        for process in self.running:
            if process.status is None and process.pid in self._listening:
                browser = process.browser
                tab = browser.tabs.get(canary.target_id)
                if tab is not None and tab.attached:
                    return (
                        browser.answers_at_once(PROBE_METHOD)
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


class _CheckedChromium(FakeChromium):
    """A Chromium that checks that no context gets the cookies of two accounts."""

    def __init__(self, machine: Machine, *args: Any) -> None:
        super().__init__(*args)
        self._machine = machine

    def set_cookies(self, params: Json) -> Json:
        before = self.contexts.get(params["browserContextId"])
        if before:
            old, new = _owner_of(before), _owner_of(params["cookies"])
            if old != new:
                self._machine.fail(f"a context with the cookies of {old} got those of {new}")
        return super().set_cookies(params)


def _owner_of(cookies: list[Json]) -> tuple[str, ...]:
    """Return the account and the variant of cookies of one domain."""
    values = {cookie["name"]: cookie["value"] for cookie in cookies}
    return values.get("SPC_U", ""), values.get(VARIANT, "")


class Workers(workers.Workers):
    """The machine below workers, which reports each start to `executions`."""

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
