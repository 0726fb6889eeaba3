"""The daemon of a soak: a process with its observer.

It is configured by a file, as its owner would do it. Two things are as no owner would have them:
Chromium is never replaced for its size or age, and the tables that the daemon remembers results in
are small. The first would hide a leak; full tables are bounded by themselves, and small ones are
full when the warm-up is over.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from smartlinkd.auth.passwords import hash_password
from smartlinkd.sandbox.batch import Origins
from tests.config_file import Tables, write_config
from tests.programs import PASSWORD, Program
from tests.soak.worker import WORKER

CREW: Final = "soak"
WARM: Final = 4
"""Accounts whose pages are kept open."""
REMEMBERED: Final = 100
"""Links, and products, and executions of the crew: a table of that size is full in a minute."""
NEVER_BY_AGE: Final = 30 * 24 * 3600
NEVER_BY_SIZE: Final = 64 * 1024**3
"""The largest that the configuration takes."""


@dataclass
class Daemon:
    """A daemon that runs. `observer` is the socket in its process."""

    program: Program
    folder: Path
    url: str
    observer: Path

    @property
    def pid(self) -> int:
        return self.program.process.pid


@contextmanager
def daemon(folder: Path, portal: Origins, *, no_sandbox: bool, log: Path) -> Iterator[Daemon]:
    """A daemon that works with `portal`, with an observer in it (see `observed.py`)."""
    folder.mkdir()
    config, observer = folder / "config.toml", folder / "observer"
    write_config(config, _configuration(folder / "state", portal, no_sandbox=no_sandbox))
    words = (str(observer), "serve", "--config", str(config))
    program = Program("tests.soak.observed", *words, folder=folder, log=log)
    try:
        url = program.wait_for(r'"serving on (http://[0-9.:]+)"', program.log)[1]
        yield Daemon(program, folder, url, observer)
    finally:
        program.stop()


def _configuration(state: Path, portal: Origins, *, no_sandbox: bool) -> Tables:
    return {
        # Logins come from as many addresses as they say.
        "server": {"bind": "127.0.0.1:0", "trusted_proxies": ["127.0.0.0/8"]},
        "state": {"directory": str(state)},
        "auth": {"password_hash": hash_password(PASSWORD)},
        "browser": {
            "no_sandbox": no_sandbox,
            "contexts": WARM,
            "recycle_after": NEVER_BY_AGE,
            "recycle_memory": NEVER_BY_SIZE,
        },
        "marketplace": {
            "portal_url": portal.portal,
            "shop_url": portal.shop,
            "short_urls": [portal.short],
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
