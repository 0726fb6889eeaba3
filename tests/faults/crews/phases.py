"""Phases of an execution: in the middle of what a fault strikes.

Each one brings a stage to a point and holds it there: a worker at what it does next, the journal at
a statement, the portal at a request, a receiver at a call. What stands there is told as a `Scene`;
`go_on` lets it go on, by doing what had to be done anyway.

Two executions are there besides: a bystander of another crew, which is run again when the daemon or
its executor was restarted, and in `queued` the one that runs in front.
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
from tests.fakes.puppets import Puppet, Step
from tests.faults.crews.client import Client
from tests.faults.crews.stage import CrewStage
from tests.faults.door import Asked
from tests.faults.phases import SUBMIT, started
from tests.faults.stage import LOOK_EVERY, comes_about

WATCH = 30.0
"""Seconds that a client waits for a change."""
REACHED = 30.0
KEY = "the one and only"

ORDINARY: list[Step] = ["started", "task a", "done a", "result fine"]
REST: list[Step] = ["done a", "result fine"]
"""What is left to do for a worker at work on its task."""


@dataclass
class Scene:
    """What is under way. `victim` is the request of who asked; without one somebody asks now."""

    phase: str
    stage: CrewStage
    client: Client
    receiver: Receiver
    bystander: str = ""
    kickoff_id: str = ""
    """The execution that is struck, where it has an id by now."""
    other: str = ""
    """The one in front."""
    victim: Asked | None = None
    go_on: Callable[[], object] = lambda: None
    gates: list[Gate] = field(default_factory=list)

    @property
    def puppet(self) -> Puppet:
        return self.stage.workers.of(self.kickoff_id)

    def kick_off(self, *script: Step) -> Asked:
        """With webhooks: everything is told, and the end by itself, too. An ordinary one is the
        same each time, for who asks again after a failure."""
        key = "" if script else KEY
        return self.client.kick_off(*(script or ORDINARY), key=key, **_targets(self.receiver))

    def watch(self) -> Asked:
        return self.client.ask("GET", f"/status/{self.kickoff_id}?wait={WATCH:g}")


Phase = Callable[[CrewStage, trio.Nursery], Awaitable[Scene]]


async def idle(stage: CrewStage, nursery: trio.Nursery) -> Scene:
    await started(stage, nursery)
    bystander = await Client(stage, "again").started("started", "task b", "hear")
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
    scene.other = await scene.client.started("started", "task a", "hear")
    await _reached(scene, scene.other, "hear")
    scene.kickoff_id = await _accepted(scene)
    scene.victim = scene.watch()
    scene.go_on = lambda: _finish(stage, scene.other)
    return scene


async def starting(stage: CrewStage, nursery: trio.Nursery) -> Scene:
    scene = await _at("starting", stage, nursery)
    stage.workers.starting = Gate()
    _hold(scene, stage.workers.starting)
    # It takes a moment, so that what strikes is there before it is done.
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
    """In a tool call: links are made, and the portal takes its time."""
    scene = await _at("calling", stage, nursery)
    cookie = {"cookie": cookie_header(stage.account())}
    await stage.request("POST", "/api/sync-cookie", cookie).good()
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
    """For a person."""
    scene = await _at("waiting", stage, nursery)
    await _works(scene, "started", "task a", "ask a", "hear", *REST)
    await scene.client.reaches(scene.kickoff_id, "waiting_for_human_input", REACHED)
    await _watched(scene)
    scene.go_on = lambda: scene.client.ask("POST", "/resume", _feedback(scene.kickoff_id))
    return scene


async def stopping(stage: CrewStage, nursery: trio.Nursery) -> Scene:
    """By a client; the worker does not obey, and has not been killed yet."""
    scene = await _at("stopping", stage, nursery)
    await _works(scene, "started", "deaf", "hang")
    scene.victim = scene.client.ask("POST", f"/stop/{scene.kickoff_id}")
    await trio.sleep(1.0)
    return scene


async def ending(stage: CrewStage, nursery: trio.Nursery) -> Scene:
    """Its end is being stored."""
    scene = await _at("ending", stage, nursery)
    await _works(scene, "started", "task a", "hear")
    await _watched(scene)
    _hold(scene, stage.disk.hold(_ends))
    _finish(stage, scene.kickoff_id)
    await scene.gates[0].reached.wait()
    return scene


async def delivering(stage: CrewStage, nursery: trio.Nursery) -> Scene:
    """Its end is stored, and the receiver has the call that tells of it in hand."""
    scene = await _at("delivering", stage, nursery)
    gate = Gate()
    await _works(scene, "started", "task a", "hear")
    await trio.sleep(1.0)  # and the first calls are made
    scene.receiver.next.append(_held(gate))
    scene.receiver.next.append(_held(gate))
    _finish(stage, scene.kickoff_id)
    await scene.client.ended(scene.kickoff_id, REACHED)
    await gate.reached.wait()
    await trio.sleep(LOOK_EVERY)
    _hold(scene, gate)
    scene.victim = scene.client.ask("GET", f"/status/{scene.kickoff_id}?wait=1")
    return scene


async def restarting(stage: CrewStage, nursery: trio.Nursery) -> Scene:
    """The executor has failed, and is not there yet again."""
    scene = await _at("restarting", stage, nursery)
    await _works(scene, "started", "task a", "hear")
    scene.other, scene.kickoff_id = scene.kickoff_id, ""
    stage.fail("executor")
    assert await comes_about(lambda: stage.parts()["executor"].state == "waiting", REACHED)
    scene.victim = scene.kick_off()
    await trio.sleep(LOOK_EVERY)
    return scene


async def draining(stage: CrewStage, nursery: trio.Nursery) -> Scene:
    """The daemon is being stopped, and waits for a worker that does not obey."""
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
    """One that keeps no connections: how many there are would depend on when one looks."""
    receiver = stage.internet.receiver()
    receiver.usual = answer(200, Connection="close")
    return receiver


def _targets(receiver: Receiver) -> dict[str, Any]:
    return {
        "crewWebhookUrl": receiver.url("/end"),
        "webhooks": {"url": receiver.url("/stream"), "events": []},
    }


async def _accepted(scene: Scene, *script: Step) -> str:
    return str((await scene.kick_off(*script).good())["kickoff_id"])


async def _works(scene: Scene, *script: Step) -> None:
    """It runs, and has done its script up to where it waits or hangs."""
    scene.kickoff_id = await _accepted(scene, *script)
    await _reached(scene, scene.kickoff_id, "hang" if "hang" in script else "hear")
    await trio.sleep(LOOK_EVERY)  # all of it is recorded


async def _watched(scene: Scene) -> None:
    scene.victim = scene.watch()
    await trio.sleep(LOOK_EVERY)


async def _reached(scene: Scene, kickoff_id: str, step: Step) -> None:
    assert await comes_about(lambda: _has_worker(scene.stage, kickoff_id), REACHED)
    with trio.fail_after(REACHED):
        await scene.stage.workers.of(kickoff_id).until(step)


def _has_worker(stage: CrewStage, kickoff_id: str) -> bool:
    return any(each.execution == kickoff_id for each in stage.workers.running)


def _finish(stage: CrewStage, kickoff_id: str) -> None:
    if _has_worker(stage, kickoff_id) and not stage.workers.of(kickoff_id).told:
        stage.workers.of(kickoff_id).do(*REST)


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
