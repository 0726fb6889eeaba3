"""The errors that refuse one request, and helpers for errors of all kinds.

A `Refused` ends one request alone. Its text says what is wrong and what to do, and never holds a
secret. The HTTP API maps each class to one status (api/errors.py), and the actor that raises it
goes on (supervision/actor.py). Any other exception is a bug, and ends the actor it happened in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, TypeVar

from pydantic import JsonValue

BUG: Final = "internal error; the daemon's log has it"
"""The text for a client whose request met a bug."""

MAX_ERROR_TEXT: Final = 1000
"""Characters of an error in `describe`. The log has the whole text."""

E = TypeVar("E", bound=BaseException)


class Refused(Exception):  # noqa: N818 - the field's word for it; its kinds are errors by position
    """One request was refused; the actor that refused it goes on."""


class Invalid(Refused):
    """The request is wrong. The text names the field, its fault and the remedy."""


class WrongCredential(Refused):
    """A wrong password, one-time code or crew token."""


class WrongToken(WrongCredential):
    """A missing or wrong bearer token of a crew (RFC 6750)."""


class NotAllowed(Refused):
    """The token or the address does not give access to this."""


class NotFound(Refused):
    """The resource does not exist, or this caller may not know of it."""


class Conflict(Refused):
    """The daemon's present state does not allow the request."""


class Unprocessable(Refused):
    """A well-formed request that cannot be carried out.

    `details` names the faulty parts for programs, and repeats no value that the caller sent.
    """

    def __init__(self, message: str, *, details: Mapping[str, JsonValue] | None = None) -> None:
        super().__init__(message)
        self.details = dict(details or {})


class NotNow(Refused):
    """A valid request at the wrong moment; `retry_after` has whole seconds."""

    def __init__(self, message: str, *, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = max(1, retry_after)


class TooManyTries(NotNow):
    """Too many tries have failed: those of the client's network, or all for one-time codes."""


class TooManyAtOnce(NotNow):
    """The caller's token has as many connections as one token may have."""


class Unavailable(NotNow):
    """The daemon cannot do it now: a part of it restarts or is full, or the disk is, say."""


class UpstreamFailed(Refused):
    """The browser or the marketplace failed."""


class BrowserEnded(UpstreamFailed):
    """The browser ended during the work, and is being started again."""


def leaves(group: BaseExceptionGroup[E]) -> Iterator[E]:
    """Yield the errors of a group and of the groups in it, in order."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from leaves(error)
        else:
            yield error


def describe(error: BaseException) -> str:
    """Return an error's type and text in one line. Of a group the first member is shown."""
    if isinstance(error, BaseExceptionGroup):
        first, more = error.exceptions[0], len(error.exceptions) - 1
        return describe(first) + (f" (and {more} more)" if more else "")
    text = " ".join(str(error).split())
    if len(text) > MAX_ERROR_TEXT:
        text = text[: MAX_ERROR_TEXT - 1] + "…"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
