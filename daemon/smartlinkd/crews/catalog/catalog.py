"""The crews of a configuration: those that can run, and those that cannot, with the reasons.

Everything that a crew needs is checked at the start, at each reload and by `check-config`. See
docs/decisions/073-catalog.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from smartlinkd.config import Problem, Settings
from smartlinkd.config.crews import CrewSection, CrewTable, OnRestart
from smartlinkd.crews.catalog.checks import (
    PROBE_TIMEOUT_S,
    check_folder,
    check_program,
    check_python,
)
from smartlinkd.crews.catalog.crewai_project import merge_inputs, read_project
from smartlinkd.crews.model import BrokenCrew, Crew, Input
from smartlinkd.crews.tools import TOOL_NAMES
from smartlinkd.crews.worker import WorkerSettings
from smartlinkd.errors import NotFound, Unavailable
from smartlinkd.net.addresses import Bind
from smartlinkd.validation import BadValue

logger = logging.getLogger(__name__)

ADAPTER: Final = Path(__file__).parents[1] / "crewai_adapter" / "__main__.py"
UNDER: Final = "/crews/"
"""Precedes a crew's name in its path."""
RETRY_BROKEN: Final = 60
"""Seconds until a client may ask again for a broken crew."""

_EVERYWHERE = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared with, not listened on
_LOCALHOST = frozenset({"127.0.0.1", "::1"})


@dataclass(frozen=True)
class Catalog:
    """The crews of a configuration.

    `crews` has those that can run, by name, in the order of the file; `broken` has the others.
    `default` is the name of the crew that is also served at `/`, which may be a broken one.
    """

    crews: Mapping[str, Crew]
    broken: tuple[BrokenCrew, ...] = ()
    default: str | None = None

    def crew(self, name: str) -> Crew:
        """Return the crew. Raises `Unavailable` if it is broken, `NotFound` if there is none."""
        if name in self.crews:
            return self.crews[name]
        if any(each.name == name for each in self.broken):
            raise Unavailable(
                f'the crew "{name}" cannot run, because something about it is wrong; its operator '
                "sees what with `smartlinkd check-config`. What was mended counts with a "
                "`systemctl reload`",
                retry_after=RETRY_BROKEN,
            )
        raise NotFound("there is no crew of this name")

    def names(self) -> tuple[str, ...]:
        """Return the names of all crews, broken ones with a good name included."""
        return tuple(self._addressable())

    def paths(self, name: str) -> list[str]:
        """Return the crew's paths on the main address: first the one that each crew has."""
        return [UNDER + name, *(["/"] if name == self.default else [])]

    def is_gone(self, name: str) -> bool:
        """Return True if no crew of the configuration has the name."""
        return name not in self._addressable()

    def on_restart(self, name: str) -> OnRestart:
        """Return the policy for interrupted executions of a crew; "fail" if it is not known."""
        crew = self._addressable().get(name)
        return "fail" if crew is None else crew.on_restart

    def users(self) -> dict[str, tuple[str, ...]]:
        """Return the names of each crew's users, by the crew's name."""
        return {name: crew.users for name, crew in self._addressable().items()}

    def binds(self) -> dict[str, Bind]:
        """Return the addresses that crews have of their own, by the crew's name."""
        return {name: crew.bind for name, crew in self._addressable().items() if crew.bind}

    def _addressable(self) -> dict[str, Crew | BrokenCrew]:
        return {**self.crews, **{each.name: each for each in self.broken if each.name is not None}}


def longest_read_s(settings: Settings) -> float:
    """Return the seconds that `read_catalog` waits for interpreters at most."""
    return PROBE_TIMEOUT_S * sum(
        entry.section is not None and entry.section.python is not None for entry in settings.crews
    )


def read_catalog(settings: Settings, *, may_start_interpreters: bool = True) -> Catalog:
    """Check every crew of the configuration. A crew's fault never raises. Blocks.

    Args:
        may_start_interpreters: False to check only that they are there.
    """
    claims = _Claims(settings.server.bind)
    crews: dict[str, Crew] = {}
    broken: list[BrokenCrew] = []
    for entry in settings.crews:
        check = _Check(entry, may_start_interpreters=may_start_interpreters)
        claims.claim(check)
        found = check.run()
        if isinstance(found, Crew):
            crews[found.name] = found
        else:
            broken.append(found)
    return Catalog(MappingProxyType(crews), tuple(broken), claims.default)


def log_broken(catalog: Catalog) -> None:
    """Log what is wrong with the crews that cannot run."""
    for crew in catalog.broken:
        for problem in crew.problems:
            logger.error("a crew cannot run: %s", problem)


class _Claims:
    """The names and addresses that only one crew can have. The first in the file gets it."""

    def __init__(self, server: Bind) -> None:
        self.default: str | None = None
        self._names: dict[str, str] = {}
        self._binds: list[tuple[Bind, str]] = [(server, "the daemon itself (server.bind)")]

    def claim(self, crew: _Check) -> None:
        """Give a crew its name, its address and the place at `/`, as far as they are free."""
        entry, name = crew.entry, crew.name
        if name is None:
            return
        if name in self._names:
            fault = f'is "{name}", as is that of {self._names[name]}'
            remedy = "give one of them another name"
            crew.problems.append(Problem(f"{entry.place}.name", fault, remedy))
            crew.name = crew.bind = None
            return
        self._names[name] = entry.place
        if entry.section is not None and entry.section.default:
            if self.default is None:
                self.default = name
            else:
                fault = f'is true, and "{self.default}" is the default already'
                crew.problems.append(Problem(entry.key("default"), fault, "leave one of the two"))
        if crew.bind is not None and (owner := self._owner_of(crew.bind)) is not None:
            fault = f"is where {owner} listens already"
            crew.problems.append(Problem(entry.key("bind"), fault, "choose another port"))
            crew.bind = None
        elif crew.bind is not None:
            self._binds.append((crew.bind, f'the crew "{name}"'))

    def _owner_of(self, bind: Bind) -> str | None:
        return next((owner for other, owner in self._binds if _clash(bind, other)), None)


def _clash(one: Bind, other: Bind) -> bool:
    """Return True if only one of the two could listen. Port 0 is a free one each time."""
    if one.port != other.port or one.port == 0:
        return False
    hosts = {one.host, other.host}
    return (
        len(hosts) == 1
        or bool(hosts & _EVERYWHERE)
        or ("localhost" in hosts and bool(hosts & _LOCALHOST))
    )


class _Check:
    """The check of what a crew needs. It goes on after a fault, but not without its environment.

    `name` and `bind` are None if the crew has none, or cannot have its own.
    """

    def __init__(self, entry: CrewTable, *, may_start_interpreters: bool) -> None:
        self.entry = entry
        self.name = entry.name
        self.bind = None if entry.section is None else entry.section.bind
        self.problems: list[Problem] = []
        self._may_start_interpreters = may_start_interpreters

    def run(self) -> Crew | BrokenCrew:
        """Return the crew; a broken one if anything is wrong with it."""
        self.problems += self.entry.problems
        section = self.entry.section
        if section is None:
            return BrokenCrew(self.name, tuple(self.problems))
        if self.entry.has_environment:
            crew = self._check(section)
            if not self.problems:
                return crew
        problems = tuple(self.problems)
        return BrokenCrew(self.name, problems, section.users, self.bind, section.on_restart)

    def _check(self, section: CrewSection) -> Crew:
        environment = {k: v.get_secret_value() for k, v in section.environment.items()}
        command, inputs = section.command, tuple[Input, ...]()
        self._check_tools(section)
        if section.runner == "crewai":
            command = (str(section.python), str(ADAPTER), str(section.project))
            inputs = self._check_crewai(section, environment)
        elif command:
            self._passes("command", lambda: check_program(command[0], environment))
        return Crew(
            name=section.name,
            worker=WorkerSettings(command, environment, section.memory, section.grace),
            inputs=merge_inputs(inputs, section.inputs),
            max_running=section.max_running,
            queue=section.queue,
            deadline=section.deadline,
            human_deadline=section.human_deadline,
            on_restart=section.on_restart,
            users=section.users,
            tools=section.tools,
            bind=section.bind,
        )

    def _check_tools(self, section: CrewSection) -> None:
        for index, tool in enumerate(section.tools):
            if tool not in TOOL_NAMES:
                known = f"there is {', '.join(sorted(TOOL_NAMES))}"
                self._add(f"tools[{index}]", BadValue("is no tool", known))

    def _check_crewai(
        self, section: CrewSection, environment: Mapping[str, str]
    ) -> tuple[Input, ...]:
        """Return the inputs that the project's files name."""
        python, folder = section.python, section.project
        if python is not None:
            may_start = self._may_start_interpreters
            self._passes("python", lambda: check_python(python, environment, may_start=may_start))
        if folder is None or not self._passes("project", lambda: check_folder(folder)):
            return ()
        project = read_project(folder)
        for fault in project.faults:
            self._add("project", fault)
        return project.inputs

    def _passes(self, key: str, check: Callable[[], None]) -> bool:
        try:
            check()
        except BadValue as fault:
            self._add(key, fault)
            return False
        return True

    def _add(self, key: str, fault: BadValue) -> None:
        self.problems.append(Problem(self.entry.key(key), fault.fault, fault.remedy))
