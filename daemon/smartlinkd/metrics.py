"""Histograms of durations.

A histogram belongs to the actor that does the work, and outlives that actor's instances. It is in
no registry: the page at `/metrics` (admin/prometheus.py) collects it at each scrape.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import trio
from prometheus_client import Histogram

SECONDS: Final = (0.005, 0.02, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0)
LATE: Final = (0.02, 0.1, 0.5, 1.0, 2.0, 5.0, 20.0, 60.0, 300.0, 1800.0, 7200.0, 28800.0, 86400.0)
"""Buckets for a wait without a deadline, which may last for hours."""

DONE: Final = "done"
LEFT: Final = "left"


def histogram(
    name: str, description: str, *labels: str, buckets: Sequence[float] = SECONDS
) -> Histogram:
    """Return a histogram named `smartlinkd_<name>_seconds`."""
    return Histogram(
        f"smartlinkd_{name}_seconds", description, labels, buckets=buckets, registry=None
    )


@contextmanager
def timed(seconds: Histogram) -> Iterator[None]:
    """Observe the duration of the block, labelled `done`, `left` or the error's class.

    A cancelled block is observed too: when a peer is silent, no other observation is made.
    """
    began = trio.current_time()
    outcome = LEFT  # also for a group of several cancelled tasks
    try:
        yield
        outcome = DONE
    except Exception as error:
        outcome = type(error).__name__
        raise
    finally:
        seconds.labels(outcome).observe(trio.current_time() - began)
