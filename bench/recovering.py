"""The daemon, for whose browser half a second counts as healthy: `python -m bench.recovering …`.

Shipped, it is a minute, after which a browser that ends is replaced at once; after one that ended
sooner there is a wait, so that a broken one is not started over and over. The wait is no part of
what row 5 measures, and a minute before each of its rounds is more than a row has.
"""

from __future__ import annotations

import sys

from smartlinkd import cli
from smartlinkd.app import components
from smartlinkd.supervision.policy import Backoff

HEALTHY = 0.5


def main() -> int:
    """Run the daemon's command."""
    components.BROWSER_BACKOFF = Backoff(healthy=HEALTHY)
    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
