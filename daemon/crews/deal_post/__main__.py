"""`python -m daemon.crews.deal_post`: one execution."""

from __future__ import annotations

import os

from daemon.crews.deal_post.crew import run
from daemon.crews.deal_post.line import open_line

if __name__ == "__main__":
    run(open_line(os.environ), os.environ)
