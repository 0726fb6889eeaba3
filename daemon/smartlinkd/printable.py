"""Text of others, where people read it: in it nothing moves a cursor or begins a line; or it is cut
to its first one."""

from __future__ import annotations

from typing import Final

LONGEST_LINE: Final = 300
"""Characters of a foreign text that an error or a log repeats."""


def escaped(text: str) -> str:
    """With an escape for each character that cannot be printed, so that it can be told which."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def blanked(text: str) -> str:
    """With a blank for each, and so as long as it was."""
    return "".join(each if each.isprintable() else " " for each in text)


def first_line(text: str) -> str:
    """The first line of it, cut to what an error may hold."""
    first = text.strip().partition("\n")[0]
    return first if len(first) <= LONGEST_LINE else f"{first[:LONGEST_LINE]}…"
