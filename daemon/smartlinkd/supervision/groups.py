"""The errors that leave a nursery, which come in a group also when there is only one of them.

Whoever has to tell what went wrong wants the one error, or a line about it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

MAX_ERROR_TEXT = 1000
"""Characters of an error where it is told in a line; the log has all of it."""


@asynccontextmanager
async def sole_error() -> AsyncIterator[None]:
    """Around a nursery whose errors are one at a time: that error, without the group around it."""
    try:
        yield
    except BaseExceptionGroup as group:
        if len(group.exceptions) > 1:
            raise
        error = group.exceptions[0]
        raise error from error.__cause__  # `from None` would lose it


def describe(error: BaseException) -> str:
    """An error in one line: its type and text, and of a group the first member's."""
    if isinstance(error, BaseExceptionGroup):
        first, more = error.exceptions[0], len(error.exceptions) - 1
        return describe(first) + (f" (and {more} more)" if more else "")
    text = " ".join(str(error).split())
    if len(text) > MAX_ERROR_TEXT:
        text = text[: MAX_ERROR_TEXT - 1] + "…"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
