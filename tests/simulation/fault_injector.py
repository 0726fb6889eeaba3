"""The fault injector: faults that begin at random times and end after a while.

The faults of the browser and of the machine are those of the fault matrix (`tests/faults`).
"""

from __future__ import annotations

import errno
import os
import random
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import NoReturn

import trio

from smartlinkd.errors import Unavailable
from smartlinkd.sandbox.faults import FAULTS, Point
from smartlinkd.supervision.actor import Mailbox
from tests.fakes.disk import BROKEN, FULL
from tests.fakes.gate import Gate
from tests.fakes.internet import answer, hang, late, refused, reset
from tests.faults.phases import Scene
from tests.faults.stage import BIG
from tests.faults.strikes import ARMED, HOUR, LATE, PORTAL, STRIKES
from tests.simulation.life import AnyMailbox
from tests.simulation.log import MARK, InjectedCrash
from tests.simulation.receivers import REFUSED, CheckedReceiver
from tests.simulation.world import World

INTERVAL = 45.0
"""Mean seconds between two faults."""
DURATION = 25.0
"""Mean seconds until a fault is ended that does not end by itself."""

NOT_OF_THE_BROWSER = frozenset({*PORTAL, "client_gone", "sigterm", "clock_ahead", "clock_back"})
BROWSER = [name for name in STRIKES if name not in NOT_OF_THE_BROWSER]
POINTS = (Point.SESSION, Point.PAGE, Point.SUBMIT, Point.ROW, Point.PRODUCT)
UNDETECTABLE = "row_other_account"
"""The daemon takes an account's affiliate id from its first links, so it cannot see the fault in
them: see `tests/conversion/test_account.py`."""
PORTAL_FAULTS = [f.name for f in FAULTS if f.point in POINTS and f.name != UNDETECTABLE]
INVALID_LINK = "row_invalid_link"
DISK_FAULTS = ("slow disk", "disk full", "disk broken", "journal locked", "slow threads")
WORKER_FAULTS = (
    *("worker killed", "worker stopped", "reaper killed"),
    *("worker: exit 3", "worker: raw garbage", "worker: hang", "worker: close, hang"),
    *("worker: deaf, hang", "worker: flood 3, hang", "worker: fill"),
)
RECEIVER_FAULTS: dict[str, Callable[[CheckedReceiver], None]] = {
    "500": lambda receiver: receiver.set_behaviour(answer(500)),
    "429": lambda receiver: receiver.set_behaviour(answer(429, Retry_After="20")),
    "404": lambda receiver: receiver.set_behaviour(REFUSED),
    "late": lambda receiver: receiver.set_behaviour(late(40.0)),
    "hangs": lambda receiver: receiver.set_behaviour(hang),
    "reset": lambda receiver: receiver.set_behaviour(reset),
    "refused": lambda receiver: receiver.take_down(refused()),
    "silent": lambda receiver: receiver.take_down(TimeoutError()),
    "hung up": CheckedReceiver.close_connections,
}
HELD_REQUESTS = (
    "/offer/custom_link",
    "q=batchCustomLink",
    "/api/v3/offer/product?",
    "s.shop.example",
)


class FaultInjector:
    """Injects faults. Its tasks run in `nursery`."""

    def __init__(
        self, world: World, accounts: Sequence[str], nursery: trio.Nursery, chance: random.Random
    ) -> None:
        self._world = world
        self._accounts = accounts
        self._nursery = nursery
        self._chance = chance
        self._until_healed = trio.CancelScope()
        self._clock_offset = 0.0
        self._faults: dict[Callable[[], object], int] = {
            self.break_browser: 30,
            self.break_portal: 30,
            self.break_launches: 8,
            self.slow_portal: 5,
            self.hold_requests: 6,
            self.set_clock: 3,
            self.crash_actor: 8,
            self.crash_actor_repeatedly: 1,
            self.exceed_memory: 3,
            self.disconnect_clients: 4,
            self.break_disk: 6,
            self.break_worker: 14,
            self.break_worker_starts: 4,
            self.break_receiver: 8,
            self.crash_dispatcher: 2,
            self.stop_daemon: 3,
            self.kill_daemon: 4,
        }

    async def inject_for(self, seconds: float) -> None:
        """Inject one fault after another for so many seconds."""
        faults, weights = list(self._faults), list(self._faults.values())
        with trio.move_on_after(seconds):
            while True:
                await trio.sleep(self._chance.expovariate(1 / INTERVAL))
                self._chance.choices(faults, weights)[0]()

    def end_all_faults(self) -> None:
        """End all faults."""
        self._until_healed.cancel()
        self._until_healed, world = trio.CancelScope(), self._world
        world.machine.heal()
        world.machine.memory = 100 << 20
        world.machine.heal_running_browsers()
        world.heal_portal()
        world.workers.heal()
        world.crash_next_dispatch = False
        for puppet in world.workers.running:
            puppet.signal(signal.SIGCONT)
        for receiver in world.receivers:
            receiver.heal(answer(200))
        world.portal.delays.submit_ms = world.portal.delays.product_ms = 0
        for gate in world.network.gates.values():
            gate.open()
        world.network.gates.clear()
        world.heal_disk()
        if self._clock_offset:
            world.set_clock(-self._clock_offset)
            self._clock_offset = 0.0

    # Faults

    def break_browser(self) -> None:
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
        self._log_fault(name)
        STRIKES[name](scene)
        if name == "sigstop" and chance.random() < 0.6:
            self._heal_later(process.browser.resume, 4.0)

    def break_portal(self) -> None:
        name = self._chance.choice(PORTAL_FAULTS)
        account = self._account() if self._chance.random() < 0.8 else None
        times = self._chance.choice((1, 1, 2, 3))
        self._log_fault(f"portal {name}", f"{times} times for {account or 'all'}")
        self._world.portal.arm(name, times=times, account=account)
        if name == INVALID_LINK:
            self._world.invalid_answers.begin()

    def break_launches(self) -> None:
        """Kill all browsers, so that the next one is launched on a faulty machine."""
        name = self._chance.choice(list(ARMED))
        self._log_fault(name)
        ARMED[name](self._world)  # type: ignore[arg-type]
        for process in self._world.machine.running:
            process.kill()
        self._heal_later(self._world.machine.heal)

    def slow_portal(self) -> None:
        delays, chance = self._world.portal.delays, self._chance
        delays.submit_ms, delays.product_ms = chance.randrange(20_000), chance.randrange(12_000)
        self._log_fault("slow portal", f"{delays.submit_ms} ms, {delays.product_ms} ms")

        def reset_delays() -> None:
            delays.submit_ms = delays.product_ms = 0

        self._heal_later(reset_delays)

    def hold_requests(self) -> None:
        part = self._chance.choice(HELD_REQUESTS)
        self._log_fault("requests held up", part)
        gate = self._world.network.hold(part)

        def release() -> None:
            gate.open()
            if self._world.network.gates.get(part) is gate:
                del self._world.network.gates[part]

        self._heal_later(release, 8.0)

    def set_clock(self) -> None:
        by = self._chance.choice((HOUR, -HOUR))
        self._log_fault("clock set", f"by {by:+.0f} s")
        self._world.set_clock(by)
        self._clock_offset += by

    def crash_actor(self) -> None:
        """Raise an error in an actor, which crashes."""
        self._crash_one("crash", self._crash)

    def crash_actor_repeatedly(self) -> None:
        self._crash_one("crashes", self._crash_repeatedly)

    def _crash_one(self, fault: str, crash: Callable[[str, AnyMailbox], Awaitable[None]]) -> None:
        mailboxes = self._mailboxes()
        if mailboxes:
            name = self._chance.choice(list(mailboxes))
            self._log_fault(f"{fault} of {name}")
            self._nursery.start_soon(crash, name, mailboxes[name])

    def exceed_memory(self) -> None:
        """Let the browser use too much memory."""
        self._log_fault("too much memory")
        self._world.machine.memory = BIG

    def disconnect_clients(self) -> None:
        self._log_fault("all clients leave")
        self._world.disconnect_clients()

    def break_disk(self) -> None:
        world, chance = self._world, self._chance
        world.disk_fault.begin()
        kind, more = chance.choice(DISK_FAULTS), ""
        match kind:
            case "slow disk":
                world.disk.slow = chance.uniform(0.01, 3.0)
                more = f"{world.disk.slow:.2f} s"
            case "slow threads":
                world.slow_threads = chance.uniform(0.1, 10.0)
                more = f"{world.slow_threads:.2f} s"
            case "disk full":
                world.disk.fault = FULL
            case "disk broken":
                world.disk.fault = BROKEN
            case "journal locked":
                world.disk.lock()
        self._log_fault(kind, more)
        self._heal_later(world.heal_disk)

    def break_worker(self) -> None:
        """Inject a fault into a random worker."""
        world, chance = self._world, self._chance
        if not world.workers.running:
            return
        puppet = chance.choice(world.workers.running)
        kind = chance.choice(WORKER_FAULTS)
        self._log_fault(kind)
        match kind:
            case "worker killed":
                puppet.signal(signal.SIGKILL)
            case "worker stopped":
                puppet.signal(signal.SIGSTOP)
                self._heal_later(partial(puppet.signal, signal.SIGCONT), 4.0)
            case "reaper killed":
                world.workers.reaper_of(puppet).kill()
            case _:
                puppet.run_instead(*kind.removeprefix("worker: ").split(", "))

    def break_worker_starts(self) -> None:
        """Make every start of a worker fail, or wait."""
        workers = self._world.workers
        kind = self._chance.choice(("no process", "no folder", "no start", "no program"))
        self._log_fault(f"workers: {kind}")
        match kind:
            case "no process":
                workers.start_error = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            case "no folder":
                workers.folder_error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            case "no start":
                # Executions may wait at an earlier gate, which has to stay.
                workers.starting = workers.starting or Gate()
            case "no program":
                workers.program.chmod(0o644)
        self._heal_later(workers.heal)

    def break_receiver(self) -> None:
        receiver = self._chance.choice(self._world.receivers)
        kind = self._chance.choice(list(RECEIVER_FAULTS))
        self._log_fault(f"receiver: {kind}", receiver.host)
        RECEIVER_FAULTS[kind](receiver)
        self._heal_later(partial(receiver.heal, answer(200)))

    def crash_dispatcher(self) -> None:
        self._log_fault("crash of webhooks")
        self._world.crash_next_dispatch = True
        if self._world.daemon is not None:
            self._world.daemon.crews.webhooks.nudge()

    def stop_daemon(self) -> None:
        self._log_fault("sigterm")
        self._world.restart_delay = self._chance.expovariate(1 / 3.0)
        self._nursery.start_soon(self._world.stop)

    def kill_daemon(self) -> None:
        self._log_fault("daemon killed")
        self._world.restart_delay = self._chance.expovariate(1 / 3.0)
        self._world.kill()

    # Helpers

    def _log_fault(self, kind: str, more: str = "") -> None:
        self._world.log.note(f"FAULT {kind} {more}".rstrip(), count=f"fault {kind}")
        self._world.log.counts["faults"] += 1

    def _account(self) -> str:
        return self._chance.choice(self._accounts)

    def _heal_later(self, heal: Callable[[], object], mean: float = DURATION) -> None:
        """Call `heal` after about `mean` seconds, unless all faults have been ended by then."""
        seconds, until_healed = self._chance.expovariate(1 / mean), self._until_healed

        async def heal_after() -> None:
            await trio.sleep(seconds)
            if not until_healed.cancel_called:
                heal()

        self._nursery.start_soon(heal_after)

    def _mailboxes(self) -> dict[str, AnyMailbox]:
        daemon = self._world.daemon
        if daemon is None or not daemon.serving:
            return {}
        return daemon.mailboxes

    async def _crash(self, name: str, mailbox: AnyMailbox) -> None:
        def bug(_: object) -> NoReturn:
            raise InjectedCrash(f"{name} was {MARK}")

        async def async_bug(state: object) -> None:
            await trio.lowlevel.checkpoint()
            bug(state)

        with trio.move_on_after(10.0), suppress(Unavailable):
            await mailbox.ask(async_bug if isinstance(mailbox, Mailbox) else bug)
        if name == "conversion":
            self._world.expectations.service_began()

    async def _crash_repeatedly(self, name: str, mailbox: AnyMailbox) -> None:
        daemon = self._world.daemon
        with trio.move_on_after(60.0):
            while daemon is self._world.daemon and not self._until_healed.cancel_called:
                await self._crash(name, mailbox)
                await trio.sleep(0.1)
