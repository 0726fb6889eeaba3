"""The daemon with a browser that counts as healthy after 0.5 s: `python -m bench.recovering …`.

Shipped, a browser is healthy after a minute. One that ends sooner is restarted after a wait, so
that a broken one is not restarted in a loop. Row 5 does not measure the wait, and cannot take a
minute for each round.
"""

from __future__ import annotations

import sys

from smartlinkd import cli
from smartlinkd.app import components
from smartlinkd.supervision.policy import Backoff

HEALTHY = 0.5


def main() -> int:
    components.BROWSER_BACKOFF = Backoff(healthy=HEALTHY)
    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
