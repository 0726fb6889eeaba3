"""A terminal, as far as a program looks at one before it writes there, or reads."""

from __future__ import annotations

import io


class Terminal(io.StringIO):
    """What is written there, and what is typed, if it is made of that."""

    def isatty(self) -> bool:
        return True
