"""The journal's errors: those of its callers, beside `Unavailable`, and those that end it."""

from __future__ import annotations

from smartlinkd.errors import Invalid, Unavailable, Unprocessable


class KeyReused(Unprocessable):
    """The idempotency key was used for another body within its 24 hours. Nothing was created."""


class AlreadyFinished(Invalid):
    """The execution has ended, so nothing about it changes any more. Nothing was recorded."""


class TooLarge(Invalid):
    """A value is over one of the journal's own limits. Nothing was recorded."""


class DiskFull(Unavailable):
    """There is no room for it. Nothing was changed."""


class UnusableJournal(Exception):  # noqa: N818 - it is the journal that is wrong
    """The file cannot be used as it is; the text names it and says what to do."""


class NoRoomToOpen(UnusableJournal):
    """Its disk is full. To open it takes writing a little beside it."""
