"""What a caller can be told when it does not get what it asked for.

Every error that is the fault of one request, and not of the daemon, is a `Refused`. Its text is
written for the person who reads it: what is wrong, and what to do. It never holds a secret.
The kinds below are few on purpose: the facade maps each to one HTTP status (see
`api/errors.py`), and an actor that raises one lives on (see `supervision/actor.py`).
Anything else that is raised is a bug or a broken invariant, and ends the actor it happened in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, TypeVar

from pydantic import JsonValue

BUG: Final = "internal error; the daemon's log has it"
"""What whoever meets a fault of ours is told."""

E = TypeVar("E", bound=BaseException)


class Refused(Exception):  # noqa: N818 - the field's word for it; its kinds are errors by position
    """One request was refused; whoever refused it goes on."""


class Invalid(Refused):
    """The request itself is wrong: the text names the field, its fault and the remedy."""


class WrongCredential(Refused):
    """A password, a one-time code or a crew's token that is not right."""


class NotAllowed(Refused):
    """The token or the address does not give access to this."""


class NotFound(Refused):
    """There is no such thing, or none that this caller may know of."""


class Conflict(Refused):
    """The request is not carried out as long as the daemon's state is what it is."""


class Unprocessable(Refused):
    """A well-formed request that cannot be carried out; `details` tells a program which part.

    Nothing in `details` is a value that the caller has sent.
    """

    def __init__(self, message: str, *, details: Mapping[str, JsonValue] | None = None) -> None:
        super().__init__(message)
        self.details = dict(details or {})


class NotNow(Refused):
    """Right request, wrong moment; `retry_after` (whole seconds) says when to try again."""

    def __init__(self, message: str, *, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = max(1, retry_after)


class TooManyTries(NotNow):
    """Too many failures from there; the caller has to wait."""


class TooManyAtOnce(NotNow):
    """The caller's token holds as many connections as one token may."""


class Unavailable(NotNow):
    """A part of the daemon is starting, restarting or full."""


class UpstreamFailed(Refused):
    """The browser or the marketplace did not do its part."""


class BrowserEnded(UpstreamFailed):
    """The browser ended while it did its part, and is started again."""


def leaves(group: BaseExceptionGroup[E]) -> Iterator[E]:
    """The errors of a group and of the groups in it, in order."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from leaves(error)
        else:
            yield error
