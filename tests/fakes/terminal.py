"""A text stream that says it is a terminal."""

from __future__ import annotations

import io


class Terminal(io.StringIO):
    """The initial text is the typed input; the value is the output."""

    def isatty(self) -> bool:
        return True
