"""Phases of an execution in which a fault can strike.

Each function brings a stage to the phase and holds it there: a worker at a step, the store at a
statement, the portal at a request, a receiver at a call. It returns a `Scene`.

A bystander runs besides, in a crew that reruns it after a restart; in `queued`, another execution
runs before the victim's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import trio

from smartlinkd.sandbox.session import cookie_header
from smartlinkd.store.model import ExecutionState
from tests.fakes.gate import Gate
from tests.fakes.internet import Behaviour, Receiver, answer
from tests.fakes.puppets import FakeWorker, Step
from tests.faults.crews.client import Client
from tests.faults.crews.stage import CrewStage
from tests.faults.phases import SUBMIT, start
from tests.faults.sockets import SentRequest
from tests.faults.stage import POLL_INTERVAL, wait_until

WATCH = 30.0
"""Seconds that a client waits for a change."""
REACHED = 30.0  # seconds
KEY = "the one and only"

ORDINARY: list[Step] = ["started", "task a", "done a", "result fine"]
REST: list[Step] = ["done a", "result fine"]
"""The rest of the script of a worker that is at its task."""


@dataclass
class Scene:
    """A stage in a phase. `victim` is the request that is struck; None: a new one is sent.

    `go_on` lets it continue: it opens the gate, or does what the phase waits for.
    """

    phase: str
    stage: CrewStage
    client: Client
    receiver: Receiver
    bystander: str = ""
    kickoff_id: str = ""
    """The execution that is struck; "" until it has an id."""
    other: str = ""
    """The execution before it in the queue or before the restart; "" if there is none."""
    victim: SentRequest | None = None
    go_on: Callable[[], object] = lambda: None
    gates: list[Gate] = field(default_factory=list)

    @property
    def worker(self) -> FakeWorker:
        return self.stage.workers.worker_of(self.kickoff_id)

    def kick_off(self, *script: Step) -> SentRequest:
        """Kick off with webhooks for all events and for the end.

        The ordinary script has an idempotency key, so sending it again runs nothing twice.
        """
        key = "" if script else KEY
        return self.client.kick_off(*(script or ORDINARY), key=key, **_targets(self.receiver))

    def watch(self) -> SentRequest:
        return self.client.ask("GET", f"/status/{self.kickoff_id}?wait={WATCH:g}")


Phase = Callable[[CrewStage, trio.Nursery], Awaitable[Scene]]


async def idle(stage: CrewStage, nursery: trio.Nursery) -> Scene:
    await start(stage, nursery)
    bystander = await Client(stage, "again").start("started", "task b", "hear")
    scene = Scene("idle", stage, Client(stage), _receiver(stage), bystander)
    await _reached(scene, bystander, "hear")
    return scene


async def storing(stage: CrewStage, nursery: trio.Nursery) -> Scene:
    scene = await _at("storing", stage, nursery)
    _hold(scene, stage.disk.hold(_creates))
    scene.victim = scene.kick_off()
    await scene.gates[0].reached.wait()
    return scene


async def queued(stage: CrewStage, nursery: trio.Nursery) -> Scene:
    scene = await _at("queued", stage, nursery)
    scene.other = await scene.client.start("started", "task a", "hear")
    await _reached(scene, scene.other, "hear")
    scene.kickoff_id = await _accepted(scene)
    scene.victim = scene.watch()
    scene.go_on = lambda: _finish(stage, scene.other)
    return scene


async def starting(stage: CrewStage, nursery: trio.Nursery) -> Scene:
    scene = await _at("starting", stage, nursery)
    stage.workers.starting = Gate()
    _hold(scene, stage.workers.starting)
    # The sleep lets the fault strike before the worker completes.
    scene.kickoff_id = await _accepted(scene, "sleep 0.05", *ORDINARY)
    scene.victim = scene.watch()
    await scene.gates[0].reached.wait()
    stage.workers.starting = None
    return scene


async def running(stage: CrewStage, nursery: trio.Nursery) -> Scene:
    scene = await _at("running", stage, nursery)
    await _works(scene, "started", "task a", "hear")
    await _watched(scene)
    scene.go_on = lambda: _finish(stage, scene.kickoff_id)
    return scene


async def calling(stage: CrewStage, nursery: trio.Nursery) -> Scene:
    """The portal holds the submit of the worker's tool call."""
    scene = await _at("calling", stage, nursery)
    cookie = {"cookie": cookie_header(stage.account())}
    await stage.request("POST", "/api/sync-cookie", cookie).expect_ok()
    _hold(scene, stage.network.hold(SUBMIT))
    call: Step = {
        "type": "tool_call",
        "call_id": "1",
        "tool": "convert_links",
        "arguments": {"links": [stage.link()]},
    }
    await _works(scene, "started", "task a", call, "hear", *REST)
    await scene.gates[0].reached.wait()
    del stage.network.gates[SUBMIT]
    await _watched(scene)
    return scene


async def waiting(stage: CrewStage, nursery: trio.Nursery) -> Scene:
    """The execution waits for human input."""
    scene = await _at("waiting", stage, nursery)
    await _works(scene, "started", "task a", "ask a", "hear", *REST)
    await scene.client.wait_status(scene.kickoff_id, "waiting_for_human_input", REACHED)
    await _watched(scene)
    scene.go_on = lambda: scene.client.ask("POST", "/resume", _feedback(scene.kickoff_id))
    return scene


async def stopping(stage: CrewStage, nursery: trio.Nursery) -> Scene:
    """A client has asked for the stop; the worker ignores it and is not yet killed."""
    scene = await _at("stopping", stage, nursery)
    await _works(scene, "started", "deaf", "hang")
    scene.victim = scene.client.ask("POST", f"/stop/{scene.kickoff_id}")
    await trio.sleep(1.0)
    return scene


async def ending(stage: CrewStage, nursery: trio.Nursery) -> Scene:
    """The store is recording the execution's end."""
    scene = await _at("ending", stage, nursery)
    await _works(scene, "started", "task a", "hear")
    await _watched(scene)
    _hold(scene, stage.disk.hold(_ends))
    _finish(stage, scene.kickoff_id)
    await scene.gates[0].reached.wait()
    return scene


async def delivering(stage: CrewStage, nursery: trio.Nursery) -> Scene:
    """The end is stored, and the receiver has not answered the call about it."""
    scene = await _at("delivering", stage, nursery)
    gate = Gate()
    await _works(scene, "started", "task a", "hear")
    await trio.sleep(1.0)  # the first calls are made meanwhile
    scene.receiver.next.append(_held(gate))
    scene.receiver.next.append(_held(gate))
    _finish(stage, scene.kickoff_id)
    await scene.client.wait_ended(scene.kickoff_id, REACHED)
    await gate.reached.wait()
    await trio.sleep(POLL_INTERVAL)
    _hold(scene, gate)
    scene.victim = scene.client.ask("GET", f"/status/{scene.kickoff_id}?wait=1")
    return scene


async def restarting(stage: CrewStage, nursery: trio.Nursery) -> Scene:
    """The executor has failed and is not yet restarted."""
    scene = await _at("restarting", stage, nursery)
    await _works(scene, "started", "task a", "hear")
    scene.other, scene.kickoff_id = scene.kickoff_id, ""
    stage.fail("executor")
    assert await wait_until(lambda: stage.parts()["executor"].state == "waiting", REACHED)
    scene.victim = scene.kick_off()
    await trio.sleep(POLL_INTERVAL)
    return scene


async def draining(stage: CrewStage, nursery: trio.Nursery) -> Scene:
    """The daemon is stopping and waits for a worker that ignores it."""
    scene = await _at("draining", stage, nursery)
    await _works(scene, "started", "deaf", "hang")
    stage.stop()
    await trio.sleep(1.0)
    scene.victim = scene.watch()
    return scene


PHASES: dict[str, Phase] = {
    phase.__name__: phase
    for phase in (
        idle,
        storing,
        queued,
        starting,
        running,
        calling,
        waiting,
        stopping,
        ending,
        delivering,
        restarting,
        draining,
    )
}


async def _at(phase: str, stage: CrewStage, nursery: trio.Nursery) -> Scene:
    scene = await idle(stage, nursery)
    scene.phase = phase
    return scene


def _receiver(stage: CrewStage) -> Receiver:
    """Return a receiver that closes each connection, so that their number is predictable."""
    receiver = stage.internet.receiver()
    receiver.usual = answer(200, Connection="close")
    return receiver


def _targets(receiver: Receiver) -> dict[str, Any]:
    return {
        "crewWebhookUrl": receiver.url("/end"),
        "webhooks": {"url": receiver.url("/stream"), "events": []},
    }


async def _accepted(scene: Scene, *script: Step) -> str:
    return str((await scene.kick_off(*script).expect_ok())["kickoff_id"])


async def _works(scene: Scene, *script: Step) -> None:
    """Run a worker up to where its script waits or hangs."""
    scene.kickoff_id = await _accepted(scene, *script)
    await _reached(scene, scene.kickoff_id, "hang" if "hang" in script else "hear")
    await trio.sleep(POLL_INTERVAL)  # the store has recorded it all


async def _watched(scene: Scene) -> None:
    scene.victim = scene.watch()
    await trio.sleep(POLL_INTERVAL)


async def _reached(scene: Scene, kickoff_id: str, step: Step) -> None:
    assert await wait_until(lambda: _has_worker(scene.stage, kickoff_id), REACHED)
    with trio.fail_after(REACHED):
        await scene.stage.workers.worker_of(kickoff_id).wait_step(step)


def _has_worker(stage: CrewStage, kickoff_id: str) -> bool:
    return any(each.execution == kickoff_id for each in stage.workers.running)


def _finish(stage: CrewStage, kickoff_id: str) -> None:
    if _has_worker(stage, kickoff_id) and not stage.workers.worker_of(kickoff_id).is_redirected:
        stage.workers.worker_of(kickoff_id).run_instead(*REST)


def _hold(scene: Scene, gate: Gate) -> None:
    scene.gates.append(gate)
    scene.go_on = gate.open


def _held(gate: Gate) -> Behaviour:
    async def behave(stream: trio.SocketStream) -> bool:
        await gate.enter()
        return await answer(200, Connection="close")(stream)

    return behave


def _feedback(kickoff_id: str) -> dict[str, Any]:
    return {
        "execution_id": kickoff_id,
        "task_id": "a",
        "human_feedback": "good",
        "is_approve": True,
    }


def _creates(sql: str, _: Any) -> bool:
    return sql.startswith("INSERT INTO executions")


def _ends(sql: str, values: Any) -> bool:
    return sql.startswith("UPDATE executions") and values.get("state") in (
        ExecutionState.SUCCESS,
        ExecutionState.FAILED,
    )
