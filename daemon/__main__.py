"""`python -m daemon` is `smartlinkd`."""

from __future__ import annotations

import sys

from daemon.cli import main

if __name__ == "__main__":
    sys.exit(main())
