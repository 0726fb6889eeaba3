"""`python -m smartlinkd` is `smartlinkd`."""

from __future__ import annotations

import sys

from smartlinkd.cli import main

if __name__ == "__main__":
    sys.exit(main())
