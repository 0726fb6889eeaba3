"""Seeds trio's order of the tasks that are ready.

trio draws it at random and has no public way to seed it. Only this module uses trio's private
names for that.
"""

from __future__ import annotations

from trio._core import _run

# Without it trio reads tasks from a set, whose order differs between processes.
_run._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[misc]


def seed_order(seed: int | str) -> None:
    """Make the order depend on `seed` from now on."""
    _run._r.seed(seed)
