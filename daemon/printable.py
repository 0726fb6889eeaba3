"""Text of others, where people read it: in it nothing moves a cursor or begins a line."""

from __future__ import annotations


def escaped(text: str) -> str:
    """With an escape for each character that cannot be printed, so that it can be told which."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def blanked(text: str) -> str:
    """With a blank for each, and so as long as it was."""
    return "".join(each if each.isprintable() else " " for each in text)
