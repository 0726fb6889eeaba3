"""The simulated daemon's configuration, with bounds that the load reaches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.faults.stage import SIGNING, tables
from tests.simulation.crews import tables_of_crews

PASSWORD = "correct horse"
HASH = (
    "$argon2id$v=19$m=19456,t=2,p=1$CefwZuwWGQzlLoWNM0I6ig$"
    "KWqpeWRaKQR6609YJdGv/WswN3TNiJ7yyvi3a5qgX1E"
)
QUEUE = 8
"""The most submits that may wait. More jobs of the browser may (`BrowserLimits.min_queue`)."""
CONTEXTS = 3
IDLE = 240.0
"""Seconds for which an unused context is kept."""
RECYCLED = 4 * 3600.0
REMEMBERED = 6 * 3600.0
"""Seconds for which the daemon remembers a link that it made."""


def configuration(state: Path, chromium: Path, worker: Path) -> dict[str, Any]:
    return {
        **tables(state, tables_of_crews(worker)),
        "server": {"bind": "127.0.0.1:0", "trusted_proxies": ["127.0.0.1/32"]},
        "auth": {"password_hash": HASH, "signing_secret": SIGNING},
        "browser": {
            "executable": str(chromium),
            "queue": QUEUE,
            "contexts": CONTEXTS,
            "idle": IDLE,
            "recycle_after": RECYCLED,
        },
        "links": {"remember": REMEMBERED},
        "journal": {"retention_count": 1_000_000},
    }
