"""A journal on disk with calls for receivers on loopback."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
import trio
from pydantic import SecretBytes

from smartlinkd.crews.webhooks.dispatcher import WebhookDispatcher
from smartlinkd.store.actor import Store
from smartlinkd.store.model import (
    Change,
    ExecutionUpdate,
    NewDelivery,
    WebhookTarget,
)
from tests.net.receivers import open_receiver, receiver
from tests.store.calls import NOW, make_store, new

__all__ = ["open_receiver", "receiver"]  # fixtures
LOOPBACK = (ip_network("127.0.0.0/8"), ip_network("::1/128"))


@dataclass
class RunningDispatcher:
    """A journal on disk, and the webhooks part over it."""

    store: Store
    nursery: trio.Nursery
    _began: float = field(default_factory=trio.current_time)
    nudge: Callable[[], None] = field(init=False)

    def wall(self) -> datetime:
        return NOW + timedelta(seconds=trio.current_time() - self._began)

    async def execution(self, *targets: WebhookTarget) -> str:
        given = new(created_at=self.wall(), webhooks=targets)
        return await self.store.create(given)

    async def queue(self, execution_id: str, target: WebhookTarget, *bodies: bytes) -> None:
        calls = [NewDelivery(target, body, self.wall()) for body in bodies]
        await self.store.record(execution_id, ExecutionUpdate(Change(), deliveries=calls))

    async def call(self, url: str, *bodies: bytes, **target: Any) -> str:
        """An execution of its own, with calls to one target."""
        wanted = WebhookTarget(**({"kind": "task", "url": url} | target))
        execution_id = await self.execution(wanted)
        await self.queue(execution_id, wanted, *bodies)
        return execution_id

    async def waiting(self) -> list[Any]:
        """The calls that are not done: the first of each execution and target."""
        return await self.store.due_deliveries(NOW + timedelta(days=99), 100)

    async def until(self, met: Callable[[list[Any]], bool]) -> list[Any]:
        """Wait until what waits is as wanted. Each look takes real time, on a thread."""
        while not met(found := await self.waiting()):
            pass
        return found

    async def done(self) -> None:
        await self.until(lambda waiting: not waiting)

    async def begin(self, *, key: SecretBytes | None = None) -> Callable[[], None]:
        """Start the part; returns what stops it."""
        webhooks = WebhookDispatcher(self.store, allow=LOOPBACK, key=key, wall=self.wall)
        scope = trio.CancelScope()

        async def run(task_status: trio.TaskStatus[None]) -> None:
            with scope:
                await webhooks.run(task_status)

        await self.nursery.start(run)
        self.nudge = webhooks.nudge
        return scope.cancel


@pytest.fixture
async def dispatcher(tmp_path: Path, nursery: trio.Nursery) -> RunningDispatcher:
    store = make_store(tmp_path / "journal.db")
    await nursery.start(store.run)
    return RunningDispatcher(store, nursery)
