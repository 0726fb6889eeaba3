"""The man page, made from the command line's parser: `./run man` writes docs/smartlinkd.1."""

from __future__ import annotations

import os
from pathlib import Path

from argparse_manpage.manpage import Manpage

from smartlinkd.cli import build_parser

PAGE = Path(__file__).parents[1] / "docs" / "smartlinkd.1"


def man_page() -> str:
    """Return the page. Its date is fixed, so that it changes with the commands alone."""
    os.environ["SOURCE_DATE_EPOCH"] = "0"
    # Usage lines and choices are wrapped to the terminal's width.
    os.environ["COLUMNS"] = "80"
    data = {
        "prog": "smartlinkd",
        "project_name": "smartlinkd",
        "description": "product links in, your own affiliate short links out",
        "manual_title": "smartlinkd",
    }
    return str(Manpage(build_parser(), _data=data))


if __name__ == "__main__":
    PAGE.write_text(man_page(), encoding="utf-8")
