"""The log context: for which request or execution, and in which actor, a record is written.

Two context variables carry it. Tasks and threads inherit them from the task that starts them, so
they are bound only where an actor, a request, an execution or a webhook call begins. Two things
break that chain and mend it: a mailbox, whose calls carry their caller's context
(`supervision/actor.py`), and work for several callers (`LogContextSet`). No log call mentions it:
`ContextFilter` puts it on each record. See docs/decisions/011-log-context.md.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import islice

MAX_CONTEXTS = 16
"""Contexts of one record. Most submits hold links of far fewer requests."""


@dataclass(frozen=True, slots=True)
class LogContext:
    """The ids of one request or one execution of a crew. Empty where there is none."""

    request_id: str = ""
    crew: str = ""
    kickoff_id: str = ""


_contexts: ContextVar[Iterable[LogContext]] = ContextVar("log_contexts", default=())
_actor: ContextVar[str] = ContextVar("actor", default="")


def current_log_contexts() -> Iterable[LogContext]:
    """Return the running task's contexts: several if its work is done once for several callers."""
    return _contexts.get()


@contextmanager
def bind_log_contexts(contexts: Iterable[LogContext]) -> Iterator[None]:
    """Replace the contexts for the length of the block and for the tasks that it starts."""
    token = _contexts.set(contexts)
    try:
        yield
    finally:
        _contexts.reset(token)


@contextmanager
def bind_log_actor(name: str) -> Iterator[None]:
    """Name the actor that writes records in the block and in the tasks that it starts."""
    token = _actor.set(name)
    try:
        yield
    finally:
        _actor.reset(token)


def new_request_id() -> str:
    """Return an id for a request that came without one: 64 random bits."""
    return secrets.token_hex(8)


class LogContextSet(Iterable[LogContext]):
    """The contexts of all callers that work is done for once. It can grow while the work runs.

    A caller that leaves stays in it: what was done until then was done for that caller too.

    Args:
        parts: other sets. Their contexts count as well, also those that are added later.
    """

    def __init__(self, *parts: LogContextSet) -> None:
        self._added: dict[LogContext, None] = {}
        self._parts = parts

    def add_current(self) -> None:
        """Add the running task's contexts. The set ignores those beyond `MAX_CONTEXTS`."""
        for context in current_log_contexts():
            if len(self._added) < MAX_CONTEXTS:
                self._added[context] = None

    def __iter__(self) -> Iterator[LogContext]:
        # Copied: a thread may iterate while a task adds.
        found = dict.fromkeys(list(self._added))
        for part in self._parts:
            found |= dict.fromkeys(part)
        return islice(found, MAX_CONTEXTS)


class ContextFilter(logging.Filter):
    """Sets `actor` and `log_contexts` of the writing task or thread on each record."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.actor = _actor.get()
        record.log_contexts = tuple(_contexts.get())
        return True
