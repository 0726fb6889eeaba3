"""What goes wrong, and when: faults that come at random moments and stay for a while.

The strikes at the browser and at the machine are those of the fault matrix. What is struck is
whatever is there: phases come by themselves when people are busy.
"""

from __future__ import annotations

import errno
import os
import random
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import NoReturn

import trio

from smartlinkd.errors import Unavailable
from smartlinkd.sandbox.faults import FAULTS, Point
from smartlinkd.supervision.actor import Mailbox
from smartlinkd.supervision.blocking import BlockingMailbox
from tests.fakes.disk import BROKEN, FULL
from tests.fakes.gate import Gate
from tests.fakes.internet import answer, hang, late, refused, reset
from tests.faults.phases import Scene
from tests.faults.stage import BIG
from tests.faults.strikes import ARMED, HOUR, LATE, PORTAL, STRIKES
from tests.simulation.log import MARK, Struck
from tests.simulation.receivers import REFUSED
from tests.simulation.world import World

AnyMailbox = Mailbox[object] | BlockingMailbox[object]

EVERY = 45.0
"""Seconds between two faults, while it rages."""
STAYS = 25.0
"""Seconds for which a fault stays that does not end by itself."""

NOT_OF_THE_BROWSER = frozenset({*PORTAL, "client_gone", "sigterm", "clock_ahead", "clock_back"})
BROWSER = [name for name in STRIKES if name not in NOT_OF_THE_BROWSER]
POINTS = (Point.SESSION, Point.PAGE, Point.SUBMIT, Point.ROW, Point.PRODUCT)
UNSEEN = "row_other_account"
"""An account's first links tell by which name it earns. Where they are these, all others are not
its own: see `tests/conversion/test_account.py`."""
PORTAL_FAULTS = [f.name for f in FAULTS if f.point in POINTS and f.name != UNSEEN]
CALLS_INVALID = "row_invalid_link"
ORDERS = ("exit 3", "raw garbage", "hang", "close, hang", "deaf, hang", "flood 3, hang", "fill")
TARGETS = {
    "500": answer(500),
    "429": answer(429, Retry_After="20"),
    "404": REFUSED,
    "late": late(40.0),
    "hangs": hang,
    "reset": reset,
}
HELD = ("/offer/custom_link", "q=batchCustomLink", "/api/v3/offer/product?", "s.shop.example")


class Nemesis:
    """See above. What it starts lives in `nursery`."""

    def __init__(
        self, world: World, accounts: Sequence[str], nursery: trio.Nursery, chance: random.Random
    ) -> None:
        self._world = world
        self._accounts = accounts
        self._nursery = nursery
        self._chance = chance
        self._lasting = trio.CancelScope()
        self._ahead = 0.0
        self._deeds: dict[Callable[[], object], int] = {
            self.strike_browser: 30,
            self.spoil_portal: 30,
            self.break_launches: 8,
            self.slow_portal: 5,
            self.hold_requests: 6,
            self.set_clock: 3,
            self.crash_part: 8,
            self.crash_storm: 1,
            self.grow: 3,
            self.scatter_clients: 4,
            self.spoil_disk: 6,
            self.strike_worker: 14,
            self.break_workers: 4,
            self.spoil_receiver: 8,
            self.crash_webhooks: 2,
            self.stop_daemon: 3,
            self.kill_daemon: 4,
        }

    async def rage(self, seconds: float) -> None:
        deeds, weights = list(self._deeds), list(self._deeds.values())
        with trio.move_on_after(seconds):
            while True:
                await trio.sleep(self._chance.expovariate(1 / EVERY))
                self._chance.choices(deeds, weights)[0]()

    def rest(self) -> None:
        """Nothing goes wrong from now on."""
        self._lasting.cancel()
        self._lasting = trio.CancelScope()
        self._heal_all()

    def _heal_all(self) -> None:
        world = self._world
        world.machine.heal()
        world.machine.memory = 100 << 20
        world.machine.calm_down()
        world.heal_portal()
        world.workers.heal()
        world.strike_webhooks = False
        for puppet in world.workers.running:
            puppet.signal(signal.SIGCONT)
        for receiver in world.receivers:
            receiver.heal(answer(200))
        world.portal.delays.submit_ms = world.portal.delays.product_ms = 0
        for gate in world.network.gates.values():
            gate.open()
        world.network.gates.clear()
        world.heal_disk()
        if self._ahead:
            world.set_clock(-self._ahead)
            self._ahead = 0.0

    # Deeds

    def strike_browser(self) -> None:
        world, chance = self._world, self._chance
        processes = [each for each in world.machine.running if each.status is None]
        processes = [each for each in processes if hasattr(each, "browser") and each.wires]
        name = chance.choice(BROWSER)
        if not processes:
            return
        process = chance.choice(processes)
        tabs = list(process.browser.tabs.values())
        phase = chance.choice([*LATE, "submitting"])
        scene = Scene(phase, world, self._account(), process, chance.choice(tabs) if tabs else None)  # type: ignore[arg-type]
        if scene.tab is None and name in ("renderer_killed", "endless_loop"):
            return
        self._note(name)
        STRIKES[name](scene)
        if name == "sigstop" and chance.random() < 0.6:
            self._later(process.browser.resume, 4.0)

    def spoil_portal(self) -> None:
        name = self._chance.choice(PORTAL_FAULTS)
        account = self._account() if self._chance.random() < 0.8 else None
        times = self._chance.choice((1, 1, 2, 3))
        self._note(f"portal {name}", f"{times} times for {account or 'all'}")
        self._world.portal.faults.arm(name, times=times, account=account)
        if name == CALLS_INVALID:
            self._world.call_invalid()

    def break_launches(self) -> None:
        """Something is wrong with the machine when the next browser is launched: now."""
        name = self._chance.choice(list(ARMED))
        self._note(name)
        ARMED[name](self._world)  # type: ignore[arg-type]
        for process in self._world.machine.running:
            process.kill()
        self._later(self._world.machine.heal)

    def slow_portal(self) -> None:
        delays, chance = self._world.portal.delays, self._chance
        delays.submit_ms, delays.product_ms = chance.randrange(20_000), chance.randrange(12_000)
        self._note("slow portal", f"{delays.submit_ms} ms, {delays.product_ms} ms")

        def fast() -> None:
            delays.submit_ms = delays.product_ms = 0

        self._later(fast)

    def hold_requests(self) -> None:
        part = self._chance.choice(HELD)
        self._note("requests held up", part)
        gate = self._world.network.hold(part)

        def let_go() -> None:
            gate.open()
            if self._world.network.gates.get(part) is gate:
                del self._world.network.gates[part]

        self._later(let_go, 8.0)

    def set_clock(self) -> None:
        by = self._chance.choice((HOUR, -HOUR))
        self._note("clock set", f"by {by:+.0f} s")
        self._world.set_clock(by)
        self._ahead += by

    def crash_part(self) -> None:
        """A bug: the part of the daemon that meets it crashes."""
        mailboxes = self._mailboxes()
        if mailboxes:
            name = self._chance.choice(list(mailboxes))
            self._note(f"crash of {name}")
            self._nursery.start_soon(self._crash, name, mailboxes[name])

    def crash_storm(self) -> None:
        mailboxes = self._mailboxes()
        if mailboxes:
            name = self._chance.choice(list(mailboxes))
            self._note(f"crashes of {name}")
            self._nursery.start_soon(self._crash_on, name, mailboxes[name])

    def grow(self) -> None:
        """The browser is found too large."""
        self._note("too much memory")
        self._world.machine.memory = BIG

    def scatter_clients(self) -> None:
        self._note("all clients leave")
        self._world.scatter()

    def spoil_disk(self) -> None:
        world, chance = self._world, self._chance
        world.spoil()
        match chance.choice(("slow", "full", "broken", "locked", "threads")):
            case "slow":
                world.disk.slow = chance.uniform(0.01, 3.0)
                self._note("slow disk", f"{world.disk.slow:.2f} s")
            case "threads":
                world.slow_threads = chance.uniform(0.1, 10.0)
                self._note("slow threads", f"{world.slow_threads:.2f} s")
            case "full":
                world.disk.fault = FULL
                self._note("disk full")
            case "broken":
                world.disk.fault = BROKEN
                self._note("disk broken")
            case "locked":
                world.disk.lock()
                self._note("journal locked")
        self._later(world.heal_disk)

    def strike_worker(self) -> None:
        """Something becomes of somebody's worker."""
        world, chance = self._world, self._chance
        if not world.workers.running:
            return
        puppet = chance.choice(world.workers.running)
        match chance.choice(("killed", "stopped", "reaper killed", *ORDERS)):
            case "killed":
                self._note("worker killed")
                puppet.signal(signal.SIGKILL)
            case "stopped":
                self._note("worker stopped")
                puppet.signal(signal.SIGSTOP)
                self._later(partial(puppet.signal, signal.SIGCONT), 4.0)
            case "reaper killed":
                self._note("reaper killed")
                world.workers.reaper_of(puppet).kill()
            case order if order in ORDERS:
                self._note(f"worker: {order}")
                puppet.run_instead(*order.split(", "))

    def break_workers(self) -> None:
        """None can be started."""
        workers, chance = self._world.workers, self._chance
        kind = chance.choice(("no process", "no folder", "no start", "no program"))
        self._note(f"workers: {kind}")
        match kind:
            case "no process":
                workers.start_error = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            case "no folder":
                workers.folder_error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            case "no start":
                # One that is shut already has executions before it.
                workers.starting = workers.starting or Gate()
            case "no program":
                workers.program.chmod(0o644)
        self._later(workers.heal)

    def spoil_receiver(self) -> None:
        receiver = self._chance.choice(self._world.receivers)
        kind = self._chance.choice([*TARGETS, "refused", "silent", "hung up"])
        self._note(f"receiver: {kind}", receiver.host)
        match kind:
            case "refused":
                receiver.take_down(refused())
            case "silent":
                receiver.take_down(TimeoutError())
            case "hung up":
                receiver.close_connections()
            case _:
                receiver.set_behaviour(TARGETS[kind])
        self._later(partial(receiver.heal, answer(200)))

    def crash_webhooks(self) -> None:
        self._note("crash of webhooks")
        self._world.strike_webhooks = True
        if self._world.life is not None:
            self._world.life.crews.webhooks.nudge()

    def stop_daemon(self) -> None:
        self._note("sigterm")
        self._world.down_for = self._chance.expovariate(1 / 3.0)
        self._nursery.start_soon(self._world.stop)

    def kill_daemon(self) -> None:
        self._note("daemon killed")
        self._world.down_for = self._chance.expovariate(1 / 3.0)
        self._world.kill()

    # How

    def _note(self, kind: str, more: str = "") -> None:
        self._world.log.note(f"NEMESIS {kind} {more}".rstrip(), count=f"fault {kind}")

    def _account(self) -> str:
        return self._chance.choice(self._accounts)

    def _later(self, heal: Callable[[], object], mean: float = STAYS) -> None:
        """Have it end after a while, if it has not been ended by then."""
        self._nursery.start_soon(self._end, heal, self._chance.expovariate(1 / mean), self._lasting)

    async def _end(
        self, heal: Callable[[], object], seconds: float, lasting: trio.CancelScope
    ) -> None:
        await trio.sleep(seconds)
        if not lasting.cancel_called:
            heal()

    def _mailboxes(self) -> dict[str, AnyMailbox]:
        life = self._world.life
        if life is None or not life.serving:
            return {}
        crews = life.crews
        owners = {
            "auth": life.auth,
            "vault": life.vault,
            "browser": life.browser,
            "conversion": life.conversion,
            "crew tokens": crews.tokens,
            "journal": crews.store,
            "executor": crews.executor,
        }
        return {name: owner.mailbox for name, owner in owners.items()}  # type: ignore[attr-defined]

    async def _crash(self, name: str, mailbox: AnyMailbox) -> None:
        def bug(_: object) -> NoReturn:
            raise Struck(f"{name} was {MARK}")

        async def async_bug(state: object) -> None:
            await trio.lowlevel.checkpoint()
            bug(state)

        with trio.move_on_after(10.0):
            with suppress(Unavailable):
                if isinstance(mailbox, Mailbox):
                    await mailbox.ask(async_bug)
                else:
                    await mailbox.ask(bug)
        if name == "conversion":
            self._world.books.service_began()

    async def _crash_on(self, name: str, mailbox: AnyMailbox) -> None:
        life = self._world.life
        with trio.move_on_after(60.0):
            while life is self._world.life and not self._lasting.cancel_called:
                await self._crash(name, mailbox)
                await trio.sleep(0.1)
