"""What comes of a request. Apart from `sending.py`, whose imports are left for later."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Answered:
    """The receiver's answer. `retry_after` is that header's value."""

    status: int
    retry_after: str | None = None


@dataclass(frozen=True)
class Silence:
    """No answer, and why. `final` when another attempt would end the same."""

    why: str
    final: bool = False
