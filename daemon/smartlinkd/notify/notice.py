"""What the owner is told, and when: no I/O in here.

The problem: an account that loses its session, gets it back and loses it again within a minute is
three messages on a phone at night, and a disk that is just full may come and go all day. Yet the
last word has to be the true one.

The choice: of each subject (an account, the browser, the disk) a `Board` remembers what was told
last and when. A change is told at once when nothing was told of its subject for a while, else when
that time is over, and only if it is still a change then.
"""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass, field
from datetime import datetime
from math import inf
from typing import Final
from uuid import uuid4

from smartlinkd.conversion.account import MOST_ACCOUNTS
from smartlinkd.logs import LogEvent
from smartlinkd.printable import blanked
from smartlinkd.wire import timestamp

DISTANCE: Final = 30.0
"""Seconds between two notices of one subject at the least."""
LONGEST_TEXT: Final = 500
MOST_OCCURRENCES: Final = 64
"""Occurrences that may wait to be told."""


@dataclass(frozen=True)
class Notice:
    """One change. `subject` is what it is about, `state` how that stands since then.

    `fine` says that there is no trouble with it any more. An occurrence (`is_occurrence`) is told
    in any case: nothing that happens later makes it untrue.
    """

    subject: str
    state: str
    event: LogEvent
    since: datetime
    text: str
    account: str = ""
    fine: bool = False
    is_occurrence: bool = False
    id: str = field(default_factory=lambda: str(uuid4()))


@dataclass(frozen=True)
class DaemonIdentity:
    """Which daemon tells: its host's name, and its state directory, of which each has its own."""

    host: str
    state_directory: str


def body_of(notice: Notice, identity: DaemonIdentity) -> dict[str, str]:
    """The fields of a notice, all text. An account that there is none of is an empty one."""
    return {
        "id": notice.id,
        "event": notice.event.name.lower(),
        "account": notice.account,
        "state": notice.state,
        "since": timestamp(notice.since),
        "text": blanked(notice.text)[:LONGEST_TEXT],
        **asdict(identity),
    }


@dataclass
class _Subject:
    """`told` is the last notice, None before the first."""

    is_account: bool
    told: Notice | None = None
    told_at: float = -inf
    news: Notice | None = None

    @property
    def is_fine(self) -> bool:
        """There is nothing to tell of it, and as far as the owner knows no trouble."""
        return self.news is None and (self.told is None or self.told.fine)

    @property
    def is_lost_and_told(self) -> bool:
        """A lost session is all that there is to it, and the owner knows."""
        lost = self.told is not None and self.told.event is LogEvent.SESSION_LOST
        return lost and self.news is None

    def note(self, notice: Notice) -> None:
        """Take in a change."""
        known = self.told.state == notice.state if self.told is not None else notice.fine
        self.news = None if known else notice

    def due_at(self) -> float:
        return inf if self.news is None else self.told_at + DISTANCE


class Board:
    """What is still to be told. Times are in seconds, on one clock that the caller has."""

    def __init__(self) -> None:
        self._subjects: dict[str, _Subject] = {}
        self._occurrences: deque[Notice] = deque()

    def note(self, notice: Notice) -> bool:
        """Take in a change. False when it cannot be told: too many other accounts are paused, or
        have something that is still to be told; or too many occurrences are."""
        if notice.is_occurrence:
            has_room = len(self._occurrences) < MOST_OCCURRENCES
            if has_room:
                self._occurrences.append(notice)
            return has_room
        if notice.subject not in self._subjects and notice.account and not self._has_room():
            return False
        new = _Subject(is_account=bool(notice.account))
        self._subjects.setdefault(notice.subject, new).note(notice)
        return True

    def _has_room(self) -> bool:
        """Whether one more account has a place. Those that are well make it, else the one whose
        lost session was told the longest ago: it may never come back."""
        if self._accounts() >= MOST_ACCOUNTS:
            known = self._subjects.items()
            self._subjects = {name: each for name, each in known if not each.is_fine}
        if self._accounts() >= MOST_ACCOUNTS:
            lost = [name for name, each in self._subjects.items() if each.is_lost_and_told]
            if not lost:
                return False
            del self._subjects[min(lost, key=lambda name: self._subjects[name].told_at)]
        return True

    def _accounts(self) -> int:
        return sum(1 for each in self._subjects.values() if each.is_account)

    def knows(self, notice: Notice) -> None:
        """The owner has been told this before there was this board."""
        self._subjects[notice.subject] = _Subject(is_account=bool(notice.account), told=notice)

    def due_at(self) -> float:
        """When the next notice is due; `inf` when there is none."""
        if self._occurrences:
            return -inf
        return min((each.due_at() for each in self._subjects.values()), default=inf)

    def take(self, now: float) -> Notice | None:
        """A notice that is due, the one that waits for the longest; it counts as told from now.

        `inf` is for the end, when whatever there is is due. Occurrences go first.
        """
        if self._occurrences:
            return self._occurrences.popleft()
        changed = [each for each in self._subjects.values() if each.news is not None]
        due = [each for each in changed if each.due_at() <= now]
        first = min(due, key=_Subject.due_at, default=None)
        if first is None:
            return None
        first.told, first.told_at, first.news = first.news, now, None
        return first.told
