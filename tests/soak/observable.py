"""The daemon of a soak: its configuration, and its process with an observer.

Chromium is never replaced for its size or age, which would hide a leak. The tables of results are
small, so that they are full after the warm-up.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from bench.daemons import Daemon, daemon
from smartlinkd.sandbox.batch import Origins
from tests.config_file import Tables
from tests.soak.worker import WORKER

CREW: Final = "soak"
WARM: Final = 4
"""Accounts whose pages are kept open."""
REMEMBERED: Final = 100
"""Rows of the tables of links, products and executions. Such a table is full in a minute."""
NEVER_BY_AGE: Final = 30 * 24 * 3600
NEVER_BY_SIZE: Final = 64 * 1024**3
"""The largest value that the configuration accepts, in bytes."""
TABLES: Final[Tables] = {
    # Logins state their addresses in X-Forwarded-For.
    "server": {"trusted_proxies": ["127.0.0.0/8"]},
    "browser": {
        "contexts": WARM,
        "recycle_after": NEVER_BY_AGE,
        "recycle_memory": NEVER_BY_SIZE,
    },
    "links": {"remember_max": REMEMBERED},
    "products": {"remember_max": REMEMBERED},
    "journal": {"retention_count": REMEMBERED},
    "webhooks": {"allow": ["127.0.0.0/8"], "secret": "what-webhook-calls-are-signed-with"},
    "crews": [
        {
            "name": CREW,
            "runner": "command",
            "command": ["/bin/sh", "-c", WORKER],
            "tools": ["convert_links"],
            "deadline": 120,
        }
    ],
}


def observed_daemon(folder: Path, portal: Origins) -> AbstractContextManager[Daemon]:
    """Run a daemon with an observer (see `observed.py`), which works with `portal`."""
    runner = ("tests.soak.observed", str(observer_path(folder)))
    return daemon(folder, portal, TABLES, ready=False, runner=runner)


def observer_path(folder: Path) -> Path:
    """Return the path of the observer's socket."""
    return folder / "observer"
