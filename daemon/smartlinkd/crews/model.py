"""A crew as the rest of the daemon sees it, its users, and the requests about it.

The catalog makes a `Crew` of each entry in `[[crews]]`, or a `BrokenCrew` if something about it is
wrong (`smartlinkd/crews/catalog/catalog.py`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import JsonValue

from smartlinkd.config.crews import OnRestart
from smartlinkd.config.problems import Problem
from smartlinkd.crews.worker import WorkerSettings
from smartlinkd.net.addresses import Bind
from smartlinkd.store.model import WebhookTarget
from smartlinkd.supervision.policy import Backoff


@dataclass(frozen=True)
class ExecutorLimits:
    """The executor's bounds."""

    mailbox_size: int = 256
    """Kickoffs, stops and resumes that may wait, over all crews."""
    calls_at_once: int = 512
    """Calls that are worked on at a time, as many as one address serves connections. A call may
    wait for the disk or for its crew's queue; with fewer slots it would hold up kickoffs of other
    crews."""
    max_starting: int = 2 * len(os.sched_getaffinity(0))
    """Workers that start at the same time."""
    start_timeout_s: float = 10.0
    """A worker that said nothing for so long counts as started. One with CrewAI takes three
    seconds when it is alone, and six among as many as may start."""
    max_reruns: int = 3
    """Times that an interrupted execution is run again: it may be what ends the daemon."""
    backoff: Backoff = Backoff(first=0.5, longest=10.0)  # noqa: RUF009 - frozen
    """Between two tries to record something."""
    last_write_s: float = 2.0
    """For the outcome of what has ended, or was stopped, when the executor ends. A full disk would
    take for ever."""
    completion_timeout_s: float = 15.0
    """For what is left of a stopped worker to be killed, and its outcome to be recorded."""


@dataclass(frozen=True)
class Input:
    """An input of a kickoff. `default` stands in for one that is not given and not required."""

    name: str
    required: bool = True
    default: JsonValue = None
    description: str = ""


@dataclass(frozen=True)
class Crew:
    """A crew that can run.

    `deadline` is how many seconds an execution may run, without the time in which it waits for a
    human; `human_deadline` is how many it may wait for one. `max_running` executions run at a time,
    and `queue` more may wait.
    """

    name: str
    worker: WorkerSettings
    inputs: tuple[Input, ...]
    max_running: int
    queue: int
    deadline: float
    human_deadline: float
    on_restart: OnRestart
    users: tuple[str, ...]
    tools: tuple[str, ...]
    bind: Bind | None = None

    def missing(self, given: Mapping[str, JsonValue]) -> list[str]:
        """Return the sorted names of required inputs that are not given. A null is given."""
        return sorted(each.name for each in self.inputs if each.required and each.name not in given)

    def complete(self, given: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """Return the given inputs and the defaults of others.

        An input without a default is left out: a null would be a value, and "None" in a prompt.
        """
        defaults = {
            each.name: each.default
            for each in self.inputs
            if not each.required and each.default is not None
        }
        return defaults | dict(given)


@dataclass(frozen=True)
class BrokenCrew:
    """An entry that cannot run, and why.

    `name` is None if the name is what is wrong. `users`, `bind` and `on_restart` are what could be
    read, so that users still get an answer and see what ran before.
    """

    name: str | None
    problems: tuple[Problem, ...]
    users: tuple[str, ...] = ()
    bind: Bind | None = None
    on_restart: OnRestart = "fail"


@dataclass(frozen=True)
class CrewUser:
    """The holder of a crew's token: a user, or the organization if `user` is empty."""

    crew: str
    user: str = ""

    @property
    def sees_only(self) -> str | None:
        """The owner whose executions alone the user may see; None for everybody's."""
        return self.user or None


@dataclass(frozen=True)
class Kickoff:
    """A request to run a crew. The webhooks' URLs were checked."""

    inputs: dict[str, JsonValue] = field(repr=False)
    meta: JsonValue = field(default=None, repr=False)
    webhooks: tuple[WebhookTarget, ...] = ()


@dataclass(frozen=True)
class Feedback:
    """A human's answer to the question about a task. `webhooks` replace those of their kinds."""

    task_id: str
    text: str = field(repr=False)
    approved: bool
    webhooks: tuple[WebhookTarget, ...] = ()


@dataclass(frozen=True)
class CrewLoad:
    """Numbers of a crew's executions: those that have a slot, and those that wait for one."""

    running: int = 0
    waiting: int = 0


@dataclass(frozen=True)
class ListedCrew:
    """A crew of the configuration as its owner is shown it.

    `paths` are those that it answers at on the main address. A crew without a name has none.
    """

    crew: Crew | BrokenCrew
    default: bool
    paths: tuple[str, ...]
    load: CrewLoad


@dataclass(frozen=True)
class Subject:
    """The execution that an entry or a webhook call is about, and its webhook targets."""

    execution_id: str
    meta: JsonValue = field(repr=False)
    webhooks: tuple[WebhookTarget, ...] = field(repr=False)
