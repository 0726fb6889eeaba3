"""Rules of webhook calls: the verdict, and the wait (5 s to 1 h, by attempt and `Retry-After`).

| answer | verdict |
|---|---|
| 2xx | done |
| 302, 303, 307, 408, 425, 429, 5xx; no answer, or a forbidden address | later |
| any other, 301 and 308 too; a request that cannot be written | given up |
| "later", if the call has been due for 25 hours | given up |
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Final, Literal

from smartlinkd.net.egress import Answered, Unanswered
from smartlinkd.supervision.policy import Backoff

BACKOFF: Final = Backoff(first=5.0, longest=3600.0)
"""5 s, twice that, … up to an hour; each up to a fifth shorter, by chance."""

_TRANSIENT: Final = (302, 303, 307, 408, 425, 429)


@dataclass(frozen=True)
class Verdict:
    """The decision about an attempt. "later" is after `wait` seconds."""

    outcome: Literal["done", "later", "given up"]
    why: str = ""
    wait: float = 0.0


def judge(
    outcome: Answered | Unanswered,
    attempt: int,
    *,
    is_last: bool,
    now: datetime,
    chance: random.Random | None = None,
) -> Verdict:
    """Decide what comes of an attempt.

    Args:
        attempt: Its number; 1 is the first.
        is_last: True if the call is too old for another attempt.
        now: The time, for a `Retry-After` that is a date. One makes the wait longer, up to an hour.
    """
    retry_after = None
    if isinstance(outcome, Unanswered):
        why, is_final = outcome.why, outcome.is_final
    elif 200 <= outcome.status < 300:
        return Verdict("done")
    else:
        why = f"HTTP {outcome.status}"
        is_final = outcome.status not in _TRANSIENT and not 500 <= outcome.status < 600
        retry_after = outcome.retry_after
    why = f"{why} (attempt {attempt})"
    if is_final or is_last:
        return Verdict("given up", why)
    wait = max(BACKOFF.wait(attempt, chance), _asked_wait(retry_after, now))
    return Verdict("later", why, min(wait, BACKOFF.longest))


def _asked_wait(retry_after: str | None, now: datetime) -> float:
    """Return the seconds that a receiver asks for, as a number or a date; 0 if it does not."""
    given = "" if retry_after is None else retry_after.strip()
    if given.isascii() and given.isdigit():
        return float(given)  # infinite, when it has hundreds of digits
    try:
        return (parsedate_to_datetime(given) - now).total_seconds()
    except (TypeError, ValueError, OverflowError):
        return 0.0  # not a date, or one without a time zone
