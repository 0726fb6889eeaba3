"""`smartlinkd check-config FILE`: whether the daemon would start with it, and what it would do."""

from __future__ import annotations

import sys
from pathlib import Path

from daemon.browser.errors import LaunchFailed
from daemon.browser.executable import find
from daemon.config import Settings


def check_config(path: Path, settings: Settings) -> int:
    """Say that `settings`, read from `path`, are good, and in short what they make of the daemon.

    Its faults were told when it was read (see `daemon/cli.py`).
    """
    for warning in settings.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    # No fault of the file, which may be for another machine: here it would never be ready.
    try:
        find(settings.browser.executable)
    except LaunchFailed as missing:
        print(f"warning: {missing}", file=sys.stderr)
    print(f"{path}: OK")
    for line in _summary(settings):
        print(f"  {line}")
    return 0


def _summary(settings: Settings) -> list[str]:
    market = settings.marketplace
    open_to = ", ".join(map(str, settings.cookie.open_to)) or "nobody"
    key = "with" if settings.cookie.sync_key.get_secret_value() else "without"
    return [
        f"listens on {settings.server.bind}, keeps its state in {settings.state.directory}",
        f"cookie endpoints open to {open_to}; {key} a sync key",
        f"market {market.market} at {market.portal_url or 'its own addresses'}, "
        f"links by {settings.links.source}, products by {settings.products.source}",
    ]
