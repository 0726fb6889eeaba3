"""Notices to the owner, and how often they are sent. No I/O.

An account that loses its session twice within a minute would be three messages at night, and a full
disk may come and go all day; yet the last message has to be true. So `NoticeThrottle` remembers for
each subject (an account, the browser, the disk) the last notice that was sent. A change is due once
`MIN_INTERVAL` has passed since then, and only if it is still a change.
"""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass, field
from datetime import datetime
from math import inf
from typing import Final
from uuid import uuid4

from smartlinkd.conversion.account import MAX_ACCOUNTS
from smartlinkd.logs import LogEvent
from smartlinkd.untrusted import blank_unprintable
from smartlinkd.wire import timestamp

MIN_INTERVAL: Final = 30.0
"""Seconds between two notices of one subject."""
MAX_TEXT: Final = 500
"""Characters."""
MAX_OCCURRENCES: Final = 64
"""Occurrences that may wait to be sent."""


@dataclass(frozen=True)
class Notice:
    """A change of `subject`, which is in `state` since then.

    `is_resolved` ends the subject's trouble. An occurrence (`is_occurrence`) is always sent: no
    later change makes it untrue.
    """

    subject: str
    state: str
    event: LogEvent
    since: datetime
    text: str
    account: str = ""
    is_resolved: bool = False
    is_occurrence: bool = False
    id: str = field(default_factory=lambda: str(uuid4()))


@dataclass(frozen=True)
class DaemonIdentity:
    """The daemon's host name and state directory. No two daemons share both."""

    host: str
    state_directory: str


def body_of(notice: Notice, identity: DaemonIdentity) -> dict[str, str]:
    """Return the fields of a notice, all text. `account` is empty if it is about none."""
    return {
        "id": notice.id,
        "event": notice.event.name.lower(),
        "account": notice.account,
        "state": notice.state,
        "since": timestamp(notice.since),
        "text": blank_unprintable(notice.text)[:MAX_TEXT],
        **asdict(identity),
    }


@dataclass
class _Subject:
    """A subject's last sent notice (None before the first), and the one that waits."""

    is_account: bool
    sent: Notice | None = None
    sent_at: float = -inf
    pending: Notice | None = None

    @property
    def rank(self) -> int:
        """The cost of evicting it: 0 if nothing waits and the owner knows of no trouble, 1 if the
        owner knows of a lost session, else 2.
        """
        if self.pending is not None:
            return 2
        if self.sent is None or self.sent.is_resolved:
            return 0
        return 1 if self.sent.event is LogEvent.SESSION_LOST else 2

    def add(self, notice: Notice) -> None:
        is_known = self.sent.state == notice.state if self.sent else notice.is_resolved
        self.pending = None if is_known else notice

    def due_at(self) -> float:
        return inf if self.pending is None else self.sent_at + MIN_INTERVAL


class NoticeThrottle:
    """The notices that wait for one channel. Times are seconds on one clock of the caller's."""

    def __init__(self) -> None:
        self._subjects: dict[str, _Subject] = {}
        self._occurrences: deque[Notice] = deque()

    def add(self, notice: Notice) -> Notice | None:
        """Add a notice. Returns the one that is lost because there is no room for it, or None."""
        if notice.is_occurrence:
            if len(self._occurrences) >= MAX_OCCURRENCES:
                return notice
            self._occurrences.append(notice)
            return None
        is_new_account = notice.account and notice.subject not in self._subjects
        lost = self._make_room() if is_new_account else None
        new = _Subject(is_account=bool(notice.account))
        self._subjects.setdefault(notice.subject, new).add(notice)
        return lost

    def _make_room(self) -> Notice | None:
        """Evict the account of the lowest rank that was reported first, if there are too many.

        Returns the notice of it that waits, if any.
        """
        accounts = [name for name, each in self._subjects.items() if each.is_account]
        if len(accounts) < MAX_ACCOUNTS:
            return None
        evicted = min(accounts, key=lambda name: self._subjects[name].rank)
        return self._subjects.pop(evicted).pending

    def mark_sent(self, notice: Notice) -> None:
        """Record a notice that an earlier process has sent."""
        self._subjects[notice.subject] = _Subject(is_account=bool(notice.account), sent=notice)

    def due_at(self) -> float:
        """Return when the next notice is due, or `inf` if none waits."""
        if self._occurrences:
            return -inf
        return min((each.due_at() for each in self._subjects.values()), default=inf)

    def pop(self, now: float) -> Notice | None:
        """Return the notice that has been due the longest, and count it as sent now.

        Occurrences go first. With `now=inf` everything that waits is due. None if nothing is.
        """
        if self._occurrences:
            return self._occurrences.popleft()
        pending = [each for each in self._subjects.values() if each.pending is not None]
        due = [each for each in pending if each.due_at() <= now]
        first = min(due, key=_Subject.due_at, default=None)
        if first is None:
            return None
        first.sent, first.sent_at, first.pending = first.pending, now, None
        return first.sent
