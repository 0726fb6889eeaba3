"""`python -m smartlinkd.crews.deal_post`: one execution."""

from __future__ import annotations

import os

from smartlinkd.crews.deal_post.crew import open_connection, run

if __name__ == "__main__":
    run(open_connection(os.environ), os.environ)
