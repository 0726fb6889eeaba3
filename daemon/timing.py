"""How long things take, observed where they are done and shown at `/metrics`.

A histogram belongs to the part that does the thing, and outlives that part's incarnations. It is in
no registry: the page asks the parts, as it does for all else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import trio
from prometheus_client import Histogram

from daemon.errors import Refused

SECONDS: Final = (0.005, 0.02, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0)
DONE: Final = "done"


def histogram(what: str, text: str, *labels: str, buckets: Sequence[float] = SECONDS) -> Histogram:
    """One of seconds; `what` is the middle of its name."""
    return Histogram(f"smartlinkd_{what}_seconds", text, labels, buckets=buckets, registry=None)


@contextmanager
def timed(seconds: Histogram) -> Iterator[None]:
    """Observe how long the block takes, by its outcome: `done`, or the kind of its refusal.

    What was cancelled is not counted: it tells of the patience of whoever waited.
    """
    began = trio.current_time()
    try:
        yield
    except Refused as refusal:
        seconds.labels(type(refusal).__name__).observe(trio.current_time() - began)
        raise
    seconds.labels(DONE).observe(trio.current_time() - began)
