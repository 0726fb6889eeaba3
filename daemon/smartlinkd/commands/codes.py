"""Exit codes of the commands. Imports nothing: `cli.py` and `serve.py` begin with it."""

from __future__ import annotations

from typing import Final

GOOD: Final = 0
FAILED: Final = 1
"""Something is wrong that the text on standard error, or the log, tells of."""
REFUSED: Final = 2
"""What was given is wrong, the usage or the configuration, and nothing was begun."""
