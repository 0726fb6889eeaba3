"""The bounds of conversions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ConversionLimits:
    """The bounds of all conversions together, and of each."""

    timeout_s: float = 60.0
    """A request is answered within this time, waiting included."""
    chunk: int = 5
    """Links of one submit."""
    max_waiting_submits: int = 32
    """Submits of all accounts that wait. The next request is refused."""
    ttl_s: float = 86_400.0
    """A converted link is cached for this time, and where a short link leads."""
    max_cached: int = 10_000
    """Converted links that are cached, and as many short links."""
    product_ttl_s: float = 600.0
    """A product's data is cached for this time."""
    max_cached_products: int = 10_000
    refusal_pause_s: float = 900.0
    """After a refusal of product data nothing is read with that cookie for this time."""
    silence_pause_s: float = 60.0
    """The same after a reading that got no answer."""
    product_wait_s: float = 10.0
    """A converted link waits for its data this long at most. More than a source takes."""
    max_requests: int = 256
    """Requests that are converted at the same time; the next one is refused. As many may wait while
    the actor restarts."""
    gather_s: float = 0.5
    """The products of a request wait for its short links this long, so that all share submits."""
