"""The codes of a conversion entry, and the portal's codes in terms of them."""

from __future__ import annotations

from enum import IntEnum

# What the portal says of a link in its `failCode`; 0 or nothing is success.
PORTAL_SUCCESS = 0
PORTAL_INVALID_LINK = 2


class FailCode(IntEnum):
    """The `failCode` that a client is given (affiliate service, section 7)."""

    SUCCESS = 0
    UNKNOWN = -1
    INVALID_LINK = 10
    NO_PERMISSION = 40300


def from_portal(code: int | None) -> FailCode:
    """Our code for the portal's `failCode` of one row.

    3 to 7 are wrong sub-ids, which cannot happen after our own check of them; they and every number
    not known here are unknown errors rather than a guess.
    """
    if code is None or code == PORTAL_SUCCESS:
        return FailCode.SUCCESS
    if code == PORTAL_INVALID_LINK:
        return FailCode.INVALID_LINK
    return FailCode.UNKNOWN
