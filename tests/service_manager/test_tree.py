"""The loops of the whole daemon are watched by the watchdog."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from smartlinkd.app import tree
from smartlinkd.auth.passwords import hash_password
from smartlinkd.config import build
from smartlinkd.supervision.supervisor import Supervisor

PATIENCE = 20.0
UPKEEP = "browser upkeep"
"""This loop turns without probes; tests/browser/test_actor.py tests it."""
LOOPS = [
    *("smartlinkd", "pauses", "auth", "vault", "history", "browser", UPKEEP, "conversion"),
    *("crew tokens", "crews", "journal", "executor", "webhooks"),
]


@asynccontextmanager
async def running_daemon(directory: Path, patch: pytest.MonkeyPatch) -> AsyncIterator[Supervisor]:
    made: list[Supervisor] = []

    def make(*args: Any, **more: Any) -> Supervisor:
        made.append(Supervisor(*args, **more))
        return made[-1]

    patch.setattr(tree, "Supervisor", make)
    settings = build(
        {
            "server": {"bind": "127.0.0.1:0"},
            "state": {"directory": str(directory / "state")},
            "auth": {"password_hash": hash_password("correct horse")},
            "browser": {"executable": "/nowhere/chromium", "job_timeout": 77},
        }
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(tree.serve, settings)
        yield made[-1]
        nursery.cancel_scope.cancel()


async def test_every_loop_of_the_daemon_is_watched_and_answers_probes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_daemon(tmp_path, monkeypatch) as supervisor:
        loops = supervisor.watched_loops()
        since = trio.current_time()
        with trio.fail_after(PATIENCE):
            for each in loops:
                while each.name != UPKEEP and each.heartbeat.last <= since:
                    each.heartbeat.probe()
                    await trio.lowlevel.checkpoint()
        assert [each.name for each in loops] == LOOPS
        assert {each.name: each.busy for each in loops if each.busy} == {
            **dict.fromkeys(("browser", UPKEEP), 77 + 5.0),
            **dict.fromkeys(
                ("pauses", "history", "crew tokens", "journal", "executor", "webhooks"), 60.0
            ),
        }
