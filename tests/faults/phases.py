"""Phases of a conversion in which a fault can strike.

Each function brings a stage to the phase and holds it there, at a command to the browser or at a
request to the portal. It returns a `Scene`, whose `release` opens the gates.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import trio

from smartlinkd.browser.limits import BrowserLimits
from tests.fakes.chromium import FakeChromium
from tests.fakes.gate import Gate
from tests.fakes.machine import Process
from tests.fakes.tab import Tab
from tests.faults.sockets import SentRequest
from tests.faults.stage import BIG, Stage, wait_until

SUBMIT = "q=batchCustomLink"
PRODUCT = "/api/v3/offer/product?"
PAGE = "/offer/custom_link"
CANARY_CALL = "Runtime.callFunctionOn"
DISPOSE = "Target.disposeBrowserContext"
MEASURE_INTERVAL = 30.0  # seconds between two measurements of the browser's memory
SOON = 20.0  # seconds


@dataclass
class Scene:
    """A stage in a phase. `victim` is the request that is struck; None: a new one is sent."""

    phase: str
    stage: Stage
    account: str
    process: Process
    tab: Tab | None = None
    victim: SentRequest | None = None
    gates: list[Gate] = field(default_factory=list)
    others: list[SentRequest] = field(default_factory=list)

    @property
    def browser(self) -> FakeChromium:
        return self.process.browser

    def release(self) -> None:
        for gate in self.gates:
            gate.open()


Phase = Callable[[Stage, trio.Nursery], Awaitable[Scene]]


async def start(stage: Stage, nursery: trio.Nursery) -> None:
    await nursery.start(stage.run)
    await stage.until_ready(SOON)


async def start_with_page(stage: Stage, nursery: trio.Nursery) -> str:
    """Start the daemon and open an account's page. Return the account."""
    await start(stage, nursery)
    account = stage.account()
    asked = stage.ask(account)
    mapping = (await asked.expect_ok())["mapping"]
    assert all(entry["product"] for entry in mapping.values()), asked
    return account


async def idle(stage: Stage, nursery: trio.Nursery) -> Scene:
    account = await start_with_page(stage, nursery)
    await trio.sleep(BrowserLimits().trusted_for_s)
    return Scene("idle", stage, account, stage.machine.process, _links_tab(stage))


async def starting(stage: Stage, nursery: trio.Nursery) -> Scene:
    gates = _hold_canary(stage)
    await nursery.start(stage.run)
    return await _at_canary("starting", stage, gates)


async def restarting(stage: Stage, nursery: trio.Nursery) -> Scene:
    await start(stage, nursery)
    gates = _hold_canary(stage)
    stage.machine.process.kill()
    return await _at_canary("restarting", stage, gates)


def _hold_canary(stage: Stage) -> list[Gate]:
    gates: list[Gate] = []
    stage.machine.prepare = lambda browser: gates.append(browser.hold(CANARY_CALL))
    return gates


async def _at_canary(phase: str, stage: Stage, gates: list[Gate]) -> Scene:
    assert await wait_until(lambda: gates, SOON)
    stage.machine.prepare = lambda _: None
    await gates[0].reached.wait()
    (canary,) = stage.machine.browser.tabs.values()
    return Scene(phase, stage, stage.account(), stage.machine.process, canary, gates=gates)


async def loading(stage: Stage, nursery: trio.Nursery) -> Scene:
    await start(stage, nursery)
    return await _held("loading", stage, stage.account(), PAGE)


async def submitting(stage: Stage, nursery: trio.Nursery) -> Scene:
    return await _held("submitting", stage, await start_with_page(stage, nursery), SUBMIT)


async def reading(stage: Stage, nursery: trio.Nursery) -> Scene:
    return await _held("reading", stage, await start_with_page(stage, nursery), PRODUCT)


async def queued(stage: Stage, nursery: trio.Nursery) -> Scene:
    """The victim waits behind another request of its account, which is being submitted."""
    scene = await submitting(stage, nursery)
    assert scene.victim is not None
    scene.phase, scene.others = "queued", [scene.victim]
    scene.victim = stage.ask(scene.account, sub_id="behind")
    await trio.sleep(0.1)
    return scene


async def disposing(stage: Stage, nursery: trio.Nursery) -> Scene:
    """A request has failed, and the victim waits until its context is disposed of."""
    account = await start_with_page(stage, nursery)
    stage.portal.arm("submit_500", times=1, account=account)
    scene = Scene("disposing", stage, account, stage.machine.process, _links_tab(stage))
    scene.gates = [scene.browser.hold(DISPOSE)]
    failed = stage.ask(account)
    await scene.gates[0].reached.wait()
    assert await failed.wait() == 502, failed
    scene.victim = stage.ask(account)
    await trio.sleep(0.1)
    return scene


async def draining(stage: Stage, nursery: trio.Nursery) -> Scene:
    """The next browser is up; the old one only finishes the victim's work."""
    scene = await _recycled(stage, nursery, lambda _: None)
    assert await wait_until(lambda: stage.browser.status().pid != scene.process.pid, SOON)
    stage.machine.memory = 0
    return scene


async def _recycled(stage: Stage, nursery: trio.Nursery, arm: Callable[[Stage], object]) -> Scene:
    """Exceed the memory limit while the victim's work is on the browser."""
    account = await start_with_page(stage, nursery)
    await trio.sleep(MEASURE_INTERVAL - 1.0)
    scene = await _held("draining", stage, account, SUBMIT)
    arm(stage)
    stage.machine.memory = BIG
    return scene


async def _held(phase: str, stage: Stage, account: str, part: str) -> Scene:
    gate = stage.network.hold(part)
    process = stage.machine.process
    victim = stage.ask(account)
    await gate.reached.wait()
    del stage.network.gates[part]
    tab = _newest(stage) if phase in ("loading", "reading") else _links_tab(stage)
    return Scene(phase, stage, account, process, tab, victim, [gate])


def _newest(stage: Stage) -> Tab:
    return list(stage.machine.browser.tabs.values())[-1]


def _links_tab(stage: Stage) -> Tab:
    """Return the first tab at the portal. The canary's tab has no page."""
    return next(tab for tab in stage.machine.browser.tabs.values() if PAGE in tab.document.url)


PHASES: dict[str, Phase] = {
    phase.__name__: phase
    for phase in (
        idle,
        starting,
        queued,
        loading,
        submitting,
        reading,
        disposing,
        restarting,
        draining,
    )
}


Armed = Callable[[Stage, trio.Nursery, Callable[[Stage], object]], Awaitable[Scene]]


async def armed_starting(
    stage: Stage, nursery: trio.Nursery, arm: Callable[[Stage], object]
) -> Scene:
    arm(stage)
    await nursery.start(stage.run)
    return Scene("starting", stage, stage.account(), Process(0))


async def armed_restarting(
    stage: Stage, nursery: trio.Nursery, arm: Callable[[Stage], object]
) -> Scene:
    await start(stage, nursery)
    arm(stage)
    process = stage.machine.process
    process.kill()
    assert await wait_until(lambda: not stage.ready, SOON)
    return Scene("restarting", stage, stage.account(), process)


ARMED_PHASES: dict[str, Armed] = {
    "starting": armed_starting,
    "restarting": armed_restarting,
    "draining": _recycled,
}
"""Phases for faults that are set before a browser is launched and strike at its launch."""
