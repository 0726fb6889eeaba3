"""How long things take, observed where they are done and shown at `/metrics`.

A histogram belongs to the part that does the thing, and outlives that part's instances. It is in
no registry: the page asks the parts, as it does for all else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import trio
from prometheus_client import Histogram

SECONDS: Final = (0.005, 0.02, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0)
LATE: Final = (0.02, 0.1, 0.5, 1.0, 2.0, 5.0, 20.0, 60.0, 300.0, 1800.0, 7200.0, 28800.0, 86400.0)
"""The bounds for a wait that has no deadline, and can be one of hours."""

DONE: Final = "done"
LEFT: Final = "left"


def histogram(what: str, text: str, *labels: str, buckets: Sequence[float] = SECONDS) -> Histogram:
    """One of seconds; `what` is the middle of its name."""
    return Histogram(f"smartlinkd_{what}_seconds", text, labels, buckets=buckets, registry=None)


@contextmanager
def timed(seconds: Histogram) -> Iterator[None]:
    """Observe how long the block takes, by its outcome: `done`, or the kind of its error.

    What was cancelled is `left`. It would have taken longer, but where all is silent nothing else
    is there to be seen.
    """
    began = trio.current_time()
    outcome = LEFT  # also as a group, of several tasks that were cancelled together
    try:
        yield
        outcome = DONE
    except Exception as error:
        outcome = type(error).__name__
        raise
    finally:
        seconds.labels(outcome).observe(trio.current_time() - began)
