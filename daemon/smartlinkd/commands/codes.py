"""Exit codes of the commands. No imports: `serve.py` starts with this."""

from __future__ import annotations

from typing import Final

GOOD: Final = 0
FAILED: Final = 1
"""The command failed. Standard error, or the log, says why."""
REFUSED: Final = 2
"""The usage or the configuration is wrong. Nothing was started."""
SOME_FAILED: Final = 3
"""Some links were converted, and others were not."""
