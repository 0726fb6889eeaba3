"""The order in which trio runs the tasks that are ready, as a seed decides it.

trio draws that order at random and has no public way to seed it, so this is the one place that uses
names which are trio's own.
"""

from __future__ import annotations

from trio._core import _run

# Without it tasks are drawn from a set, whose order differs from process to process.
_run._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[attr-defined]


def seed_order(seed: int | str) -> None:
    """Have the order from now on follow from `seed`."""
    _run._r.seed(seed)
