"""SIGTERM while workers run: workers end as promised, waiting clients are answered, and unfinished
executions are left to the next start."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import trio

if TYPE_CHECKING:
    from tests.e2e.conftest import Daemon
    from tests.e2e.crews.conftest import Employing, Meet
    from tests.fakes.receiver import Receiver

GRACE = 1
"""Seconds after which a worker that ignores SIGTERM is killed."""
AT_ONCE = 8.0
"""Seconds of a shutdown that waits for nobody. The server's grace is 10 s."""


async def follow_both(daemon: Daemon) -> bool:
    return (await daemon.metrics())["smartlinkd_execution_followers"] == 2


async def test_sigterm_ends_workers_in_order_and_lets_clients_go(
    employing: Employing, meet: Meet, receiver: Receiver, tmp_path: Path
) -> None:
    gate, heard = tmp_path / "gate", tmp_path / "heard"
    streams: list[str] = []
    waited: list[httpx.Response] = []
    with employing(
        {
            "obeys": {"script": f"IFS= read -r last <&3; printf %s \"$last\" > '{heard}'"},
            "deaf": {
                "first": "trap '' TERM",
                "gate": gate,
                "grace": GRACE,
                "max_running": 1,
                "on_restart": "rerun",
            },
        }
    ) as daemon:
        obeys, deaf = await meet(daemon, "obeys"), await meet(daemon, "deaf")
        target: dict[str, Any] = {"crewWebhookUrl": f"{receiver.url}/ends"}
        told = await obeys.kick_off(**target)
        ignored, queued = [await deaf.kick_off(**target) for _ in range(2)]
        await daemon.until("one works", lambda: obeys.works(told))
        await daemon.until("the other works", lambda: deaf.works(ignored))

        async def follow() -> None:
            answer = await obeys.ask("GET", f"/events/{told}")
            assert answer.status_code == 200, answer.text
            streams.append(answer.text)

        async def wait() -> None:
            waited.append(await deaf.ask("GET", f"/status/{ignored}?wait=60"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow)
            nursery.start_soon(wait)
            await daemon.until("both follow", lambda: follow_both(daemon))
            begun = trio.current_time()
            daemon.program.process.terminate()
        daemon.check_left_nothing(await daemon.program.ended())
        assert GRACE < trio.current_time() - begun < GRACE + AT_ONCE
        assert json.loads(heard.read_text()) == {"type": "stop"}
        assert streams[0].endswith("\n\n")
        assert "crew_kickoff_failed" not in streams[0]
        assert [(each.status_code, each.json()["state"]) for each in waited] == [(200, "RUNNING")]
        assert receiver.calls == []

        gate.touch()
        daemon.start()
        interrupted = await obeys.ended(told)
        assert (interrupted["state"], interrupted["status"]) == ("FAILED", "interrupted")
        for kickoff_id in (ignored, queued):
            assert (await deaf.ended(kickoff_id))["status"] == "completed"
        await daemon.until("calls", lambda: has_calls(receiver, {told, ignored, queued}))


async def has_calls(receiver: Receiver, kickoff_ids: set[str]) -> bool:
    return {call.body["kickoff_id"] for call in receiver.at("/ends")} == kickoff_ids
