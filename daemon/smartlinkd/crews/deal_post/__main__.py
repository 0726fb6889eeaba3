"""`python -m smartlinkd.crews.deal_post`: one execution."""

from __future__ import annotations

import os

from smartlinkd.crews.crewai_adapter.connection import open_connection
from smartlinkd.crews.deal_post.crew import run

if __name__ == "__main__":
    run(open_connection(), os.environ)
