"""A crew as the rest of the daemon sees it, who may call it, and what is asked and told of it.

What is written in `[[crews]]` becomes a `Crew`, or a `BrokenCrew` when something about it is wrong:
see `smartlinkd/crews/catalog/catalog.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import JsonValue

from smartlinkd.config.crews import OnRestart
from smartlinkd.config.problems import Problem
from smartlinkd.crews.worker import WorkerSettings
from smartlinkd.errors import NotFound
from smartlinkd.journal.model import WebhookTarget
from smartlinkd.net.addresses import Bind


@dataclass(frozen=True)
class Input:
    """One of the values that a kickoff brings. `default`, if there is one, stands in for one that
    is not required."""

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
        """The names of required inputs that are not given, sorted. One given as null is there."""
        return sorted(each.name for each in self.inputs if each.required and each.name not in given)

    def complete(self, given: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """What is given, with the defaults of what is not. What has none is not there: a null in
        its place would be a value, and "None" in a prompt of CrewAI's."""
        defaults = {
            each.name: each.default
            for each in self.inputs
            if not each.required and each.default is not None
        }
        return defaults | dict(given)


@dataclass(frozen=True)
class BrokenCrew:
    """An entry that cannot run, and why.

    `name` is None when that is what is wrong with it. `users`, `bind` and `on_restart` are what
    could be read: who held a token still gets an answer, and still sees what ran before; and what
    was interrupted is run again, once it is mended, where it says so.
    """

    name: str | None
    problems: tuple[Problem, ...]
    users: tuple[str, ...] = ()
    bind: Bind | None = None
    on_restart: OnRestart = "fail"


@dataclass(frozen=True)
class Caller:
    """Who holds a token of a crew: a user, or with `user` empty the organization."""

    crew: str
    user: str = ""

    @property
    def sees_only(self) -> str | None:
        """The owner whose executions alone the caller may see; None for everybody's."""
        return self.user or None


@dataclass(frozen=True)
class Kickoff:
    """What a client asks for. Targets are complete: their URLs were checked."""

    inputs: dict[str, JsonValue] = field(repr=False)
    meta: JsonValue = field(default=None, repr=False)
    webhooks: tuple[WebhookTarget, ...] = ()


@dataclass(frozen=True)
class Feedback:
    """A human's answer to the question about a task."""

    task_id: str
    text: str = field(repr=False)
    approved: bool


@dataclass(frozen=True)
class CrewLoad:
    """How many executions of a crew run, or have ended and their worker has yet to go; and how many
    wait for their turn."""

    running: int = 0
    waiting: int = 0


@dataclass(frozen=True)
class ListedCrew:
    """A crew of the configuration as its owner is shown it, whether it can run or not.

    `paths` are those that it answers at on the main address; one without a name has none.
    """

    crew: Crew | BrokenCrew
    default: bool
    paths: tuple[str, ...]
    load: CrewLoad


def no_such_execution(field: str = "kickoff_id") -> NotFound:
    """The refusal of an id that stands for nothing which the caller may see. `field` is what the
    request calls it."""
    return NotFound(f"{field}: there is no such execution, or not any more")
