"""The daemon of a soak: a process with its observer.

Two things are as no owner would have them: Chromium is never replaced for its size or age, and the
tables that the daemon remembers results in are small. The first would hide a leak; full tables are
bounded by themselves, and small ones are full when the warm-up is over.
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
"""Links, and products, and executions of the crew: a table of that size is full in a minute."""
NEVER_BY_AGE: Final = 30 * 24 * 3600
NEVER_BY_SIZE: Final = 64 * 1024**3
"""The largest that the configuration takes."""
TABLES: Final[Tables] = {
    # Logins come from as many addresses as they say.
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


def observable(folder: Path, portal: Origins) -> AbstractContextManager[Daemon]:
    """A daemon that works with `portal`, with an observer in it (see `observed.py`)."""
    runner = ("tests.soak.observed", str(observer_of(folder)))
    return daemon(folder, portal, TABLES, ready=False, runner=runner)


def observer_of(folder: Path) -> Path:
    """The socket in its process."""
    return folder / "observer"
