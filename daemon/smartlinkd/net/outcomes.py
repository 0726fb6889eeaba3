"""Outcomes of an egress request, apart from `egress.py`, which is imported late."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Answered:
    """The receiver's answer. `retry_after` is that header's value."""

    status: int
    retry_after: str | None = None


@dataclass(frozen=True)
class Unanswered:
    """No answer, and why. `is_final` if another attempt would end the same."""

    why: str
    is_final: bool = False
