"""As many descriptors as the daemon may need, also where it is started by hand.

The problem: a shell gives its programs 1024. Each address that is listened at lets 512 connections
in, and a crew may have one of its own, so clients who only connect could take all that there are,
and then an execution whose turn comes has no worker. The service has 8192 (`LimitNOFILE`).

The choice: ask for as many as the service has, which every user may up to the hard limit. It is low
for the sake of programs that use select(2), and there is none here. What is started inherits it, as
under the service.
"""

from __future__ import annotations

import resource
from typing import Final

ENOUGH: Final = 8192


def allow_enough() -> None:
    """Raise the limit to `ENOUGH`, or as far as the hard limit lets us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = ENOUGH if hard == resource.RLIM_INFINITY else min(ENOUGH, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
