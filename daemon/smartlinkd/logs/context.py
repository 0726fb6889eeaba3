"""What the task that logs is working for, and as which part of the daemon.

The problem: a line that the journal's thread writes is part of a client's request, and nobody who
writes a log line should have to know which. Between the two are mailboxes, nurseries and threads.

The choice: two context variables. A task takes over those of the task that started it, and so does
a thread (`trio.to_thread`), so they are set only where something begins: `acting_as` where the
supervisor starts a part, `working_for` where a request is read and where an execution runs. Two
things break that chain, and both mend it themselves: a mailbox, whose requests carry the asker's
work with them (`supervision/actor.py`), and work that several have asked for, which is done
once (`Together`). A handler's filter puts what it finds on each record, so no log call knows of it.

Rejected: a parameter through every call (half of the calls are other people's), and trio's own
task-local variables in older style (threads do not see them).
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import islice

MOST = 16
"""Works that one record names: a submit holds links of so many requests, as a rule far fewer."""


@dataclass(frozen=True, slots=True)
class Work:
    """One thing that the daemon has been asked to do: a request, or an execution of a crew."""

    request_id: str = ""
    crew: str = ""
    kickoff_id: str = ""


_works: ContextVar[Collection[Work]] = ContextVar("works", default=())
_actor: ContextVar[str] = ContextVar("actor", default="")


def works() -> Collection[Work]:
    """What the running task works for. Several, where it does for many what is done once."""
    return _works.get()


@contextmanager
def working_for(these: Collection[Work]) -> Iterator[None]:
    """In the body, and in the tasks that it starts, work for these and for nobody else."""
    token = _works.set(these)
    try:
        yield
    finally:
        _works.reset(token)


@contextmanager
def acting_as(name: str) -> Iterator[None]:
    """In the body, and in the tasks that it starts, be the part of that name."""
    token = _actor.set(name)
    try:
        yield
    finally:
        _actor.reset(token)


def new_request_id() -> str:
    """An id for a request that came without one: 64 random bits."""
    return secrets.token_hex(8)


class Together(Collection[Work]):
    """The works that something is done for once. Whoever joins later is named from then on.

    Who has left stays: what was done until then was done for them too. `parts` are others of this
    kind, whose works count as well, also those that join them later.
    """

    def __init__(self, *parts: Together) -> None:
        self._joined: dict[Work, None] = {}
        self._parts = parts

    def join(self) -> None:
        """Add what the running task works for."""
        for work in works():
            if len(self._joined) < MOST:
                self._joined[work] = None

    def __iter__(self) -> Iterator[Work]:
        # Copied: a thread may look while a task joins.
        found = dict.fromkeys(list(self._joined))
        for part in self._parts:
            found |= dict.fromkeys(part)
        return islice(found, MOST)

    def __contains__(self, work: object) -> bool:
        return any(work == each for each in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class InContext(logging.Filter):
    """Lets every record pass, with `actor` and `works` of the task or thread that wrote it."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.actor = _actor.get()
        record.works = tuple(_works.get())
        return True
