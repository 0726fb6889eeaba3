"""Requests to the simulated daemon."""

from __future__ import annotations

from tests.faults.sockets import SentRequest


class Call(SentRequest):
    """A request and its answer."""

    @property
    def status(self) -> int:
        """The HTTP status; 0 without a complete answer."""
        whole = self.exchange.ended.is_set() and not self.exchange.fault
        return self.exchange.status if whole else 0

    @property
    def error(self) -> str:
        return str(self.answer.get("error", ""))
