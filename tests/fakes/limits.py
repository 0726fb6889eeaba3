"""The desk's bounds for tests that are about others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from smartlinkd.conversion.service import DeskLimits

_USUAL = DeskLimits(
    patience=60.0,
    chunk=5,
    queue=32,
    remember=86_400.0,
    remember_limit=10_000,
    products_remember=600.0,
    products_remember_limit=10_000,
    products_pause=900.0,
)


def desk_limits(**different: Any) -> DeskLimits:
    """As shipped, but for these."""
    return replace(_USUAL, **different)
