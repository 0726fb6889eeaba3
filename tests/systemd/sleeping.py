"""Not collected by itself: what runs in a container that is stopped (tests/test_container.py)."""

from __future__ import annotations

import time


def test_it_sleeps() -> None:
    print("it sleeps", flush=True)
    time.sleep(60)
