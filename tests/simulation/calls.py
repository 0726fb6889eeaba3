"""Requests to the daemon."""

from __future__ import annotations

from tests.faults.door import SentRequest


class Call(SentRequest):
    @property
    def status(self) -> int:
        """0 when there was no whole answer."""
        whole = self.exchange.ended.is_set() and not self.exchange.fault
        return self.exchange.status if whole else 0

    @property
    def error(self) -> str:
        return str(self.answer.get("error", ""))
