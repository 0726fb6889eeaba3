"""Exit codes of commands, and how they write a message to standard error."""

from __future__ import annotations

import sys
from typing import Final

GOOD: Final = 0
FAILED: Final = 1
"""The command failed. Its output, or the log, says why."""
UNUSABLE: Final = 2
"""The usage, the configuration or the server's address cannot be used."""
SOME_FAILED: Final = 3
"""Some links were converted, and others were not."""


def say(message: object) -> None:
    """Print a line on standard error, with the program's name before it."""
    print(f"smartlinkd: {message}", file=sys.stderr)
