"""Requests to the daemon."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import trio

from tests.fakes.network import Exchange


@dataclass(eq=False)
class Call:
    """A request to the daemon."""

    exchange: Exchange
    began: float
    gone: trio.Event = field(default_factory=trio.Event)
    seconds: float = 0.0

    @property
    def status(self) -> int:
        """0 when there was no whole answer."""
        whole = self.exchange.ended.is_set() and not self.exchange.fault
        return self.exchange.status if whole else 0

    @property
    def body(self) -> Any:
        return json.loads(self.exchange.body)

    @property
    def error(self) -> str:
        return str(self.body.get("error", ""))

    async def answered(self) -> int:
        """Wait for the end of it; the status."""
        await self.exchange.ended.wait()
        self.seconds = trio.current_time() - self.began
        return self.status
