"""What the answer to a webhook call means, and when to try again: pure rules.

| what came | what happens |
|---|---|
| 2xx | delivered |
| 408, 425, 429, 5xx, a redirect that calls itself temporary (302, 303, 307) | tried again |
| no answer: no connection, a broken one, a deadline | tried again |
| anything else, 410 and the other redirects among them | given up: the same call gets the same |

Redirects are followed in no case. A receiver that says when to come again (`Retry-After`) is heard,
up to the longest wait. `MAX_ATTEMPTS` with the waits between them come to about a day.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Final

from smartlinkd.net.outcomes import Answered, Unanswered
from smartlinkd.supervision.policy import Backoff

BACKOFF: Final = Backoff(first=5.0, longest=3600.0)
"""5 s, twice that, … up to an hour; up to a fifth less, by chance."""
MAX_ATTEMPTS: Final = 35
"""Ten waits up to the longest, then 24 of those: 25 hours at the most, unless told to wait more."""

LOST_AFTER: Final = 25 * 3600.0
"""Seconds of silence after which a host counts as gone, and each call for it is tried once more. So
is a call that has been due for as long. What a silent host has been owed for as long is dropped
untried, since one hand could never make it all."""
SILENT_AFTER: Final = 60.0
"""A host counts as silent in that once its silence has lasted so many seconds. Calls that break
together, when a receiver's proxy is restarted, are no silence."""

_LATER: Final = (302, 303, 307, 408, 425, 429)


@dataclass(frozen=True)
class Delivered:
    """It was taken."""


@dataclass(frozen=True)
class Later:
    """It is tried again in `wait` seconds."""

    why: str
    wait: float


@dataclass(frozen=True)
class GivenUp:
    """It is not tried again. `worn_out` when that is because it was tried often enough."""

    why: str
    worn_out: bool


Verdict = Delivered | Later | GivenUp


def judge(
    outcome: Answered | Unanswered,
    attempt: int,
    *,
    most: int = MAX_ATTEMPTS,
    too_old: bool = False,
    now: datetime,
    chance: random.Random,
) -> Verdict:
    """What comes of the `attempt`-th attempt (1 for the first) of at most `most`, and of none
    further when the call is `too_old`."""
    retry_after = None
    if isinstance(outcome, Unanswered):
        why, final = outcome.why, outcome.is_final
    elif 200 <= outcome.status < 300:
        return Delivered()
    else:
        why = f"HTTP {outcome.status}"
        final = outcome.status not in _LATER and not 500 <= outcome.status < 600
        retry_after = outcome.retry_after
    if final or too_old or attempt >= most:
        return GivenUp(f"{why} (attempt {attempt})", worn_out=not final and attempt >= most)
    wait = max(BACKOFF.wait(attempt, chance), _asked_wait(retry_after, now))
    return Later(f"{why} (attempt {attempt})", min(wait, BACKOFF.longest))


def _asked_wait(retry_after: str | None, now: datetime) -> float:
    """Seconds that a receiver asks for, as a number or as a date; 0 when it does not."""
    given = "" if retry_after is None else retry_after.strip()
    if given.isascii() and given.isdigit():
        return float(given)  # infinite, when it has hundreds of digits
    try:
        until = parsedate_to_datetime(given)
        return (until - now).total_seconds()
    except (TypeError, ValueError, OverflowError):
        return 0.0  # not a date, or one without a time zone
