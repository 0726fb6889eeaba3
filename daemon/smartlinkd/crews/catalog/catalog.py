"""From the `[[crews]]` of the configuration to the crews that can run, and those that cannot.

The problem: what a crew needs to run is mostly not in the configuration: a program, an interpreter
with CrewAI in it, a project's files, an address that nobody else has. If that is looked at when the
first kickoff comes, its client hears of the operator's mistake.

The choice: all of it is looked at once, at the start, at each reload, and by `check-config`, with
the rights of whoever looks, which for the daemon are those its workers will have. A crew with a
fault is kept as a `BrokenCrew` that says what is wrong; it takes nothing from the others, and it
alone is looked at again from time to time: a disk may be mounted late, an interpreter may have been
slow just then. Not so when its table has to be edited: that comes with a reload, and until then its
interpreter would be started for nothing. Where two crews want the same name, address or place at
`/`, the one further up in the file has it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

from smartlinkd.config import Problem, Settings
from smartlinkd.config.crews import CrewSection, CrewTable
from smartlinkd.crews.catalog.checks import PROBE_LIMIT, Interpreters, check_folder, check_program
from smartlinkd.crews.catalog.crewai_project import refined
from smartlinkd.crews.crew import BrokenCrew, Crew, Input
from smartlinkd.crews.tools import TOOL_NAMES
from smartlinkd.crews.worker import WorkerSettings
from smartlinkd.errors import NotFound, Unavailable
from smartlinkd.net.addresses import Bind
from smartlinkd.validation import BadValue

logger = logging.getLogger(__name__)

ADAPTER: Final = Path(__file__).parents[1] / "crewai_adapter" / "__main__.py"
# What is before a crew's name in its path.
UNDER: Final = "/crews/"
# Seconds until a client may ask again for a broken crew: as often as it is looked at again.
RETRY_BROKEN: Final = 60

_EVERYWHERE = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared with, not listened on
_LOCALHOST = frozenset({"127.0.0.1", "::1"})


@dataclass(frozen=True)
class Catalog:
    """The crews of a configuration.

    `crews` are those that can run, by name, in the order of the file. `broken` are the others.
    `default` is the name of the crew that is also served at `/`; it may be a broken one.
    """

    crews: Mapping[str, Crew]
    broken: tuple[BrokenCrew, ...] = ()
    default: str | None = None

    def crew(self, name: str) -> Crew:
        """The crew of that name. Raises `Unavailable` when it is broken, `NotFound` for none."""
        if name in self.crews:
            return self.crews[name]
        if any(each.name == name for each in self.broken):
            raise Unavailable(
                f'the crew "{name}" cannot run, because something about it is wrong; its operator '
                "sees what with `smartlinkd check-config`. What is missing on its disk is looked "
                "for every minute; what has to be edited counts with a `systemctl reload`",
                retry_after=RETRY_BROKEN,
            )
        raise NotFound("there is no crew of this name")

    def names(self) -> tuple[str, ...]:
        """The names that can be called: of all crews, broken ones with a good name included."""
        return tuple(self._addressable())

    def paths(self, name: str) -> list[str]:
        """Where a crew of that name answers on the main address: first the path that each has."""
        return [UNDER + name, *(["/"] if name == self.default else [])]

    def is_gone(self, name: str) -> bool:
        """Whether nothing in the configuration can be the crew that was called so. An entry without
        a name of its own may be, by a slip."""
        return name not in self._addressable() and not self.nameless()

    def nameless(self) -> list[BrokenCrew]:
        """The broken ones that have no name of their own."""
        return [each for each in self.broken if each.name is None]

    def problems(self) -> list[Problem]:
        """All that is wrong with the broken ones."""
        return [problem for each in self.broken for problem in each.problems]

    def may_mend(self) -> bool:
        """Whether a broken one may be found otherwise by another look, without an edit."""
        return any(each.edit_at is None for each in self.broken)

    def still(self, entry: CrewTable) -> Crew | BrokenCrew | None:
        """What an entry that is the same as at this look still is, without another one: a crew that
        could run, or one whose table has to be edited."""
        for each in self.broken:
            if each.edit_at == entry.place:
                return each
        return self.crews.get(entry.name or "")

    def users(self) -> dict[str, tuple[str, ...]]:
        """The names of each crew's users, of all crews that can be called."""
        return {name: crew.users for name, crew in self._addressable().items()}

    def binds(self) -> dict[str, Bind]:
        """The addresses of their own that crews have, of all that can be called."""
        return {name: crew.bind for name, crew in self._addressable().items() if crew.bind}

    def _addressable(self) -> dict[str, Crew | BrokenCrew]:
        return {**self.crews, **{each.name: each for each in self.broken if each.name is not None}}


def longest_look(settings: Settings) -> float:
    """Seconds that `read_catalog` waits for interpreters at most."""
    sections = (entry.section for entry in settings.crews)
    asked = {(s.python, frozenset(s.environment.items())) for s in sections if s and s.python}
    return PROBE_LIMIT * len(asked)


def read_catalog(
    settings: Settings,
    go_on: Callable[[], object] = lambda: None,
    before: Catalog | None = None,
    *,
    may_start_interpreters: bool = True,
) -> Catalog:
    """Look at every crew of the configuration, or at those that another look may find otherwise
    than the one `before`, which was by the same settings. A fault of one never raises.

    Blocks, for the files that are read, and for the interpreters of CrewAI projects, each of which
    is started once. While one of them is waited for, `go_on` may raise, which ends it. With
    `may_start_interpreters` false they are only looked for, and none is started.
    """
    taken = _Taken(settings.server.bind)
    interpreters = Interpreters(go_on, may_start=may_start_interpreters)
    crews: dict[str, Crew] = {}
    broken: list[BrokenCrew] = []
    for entry in settings.crews:
        clashes = taken.take(entry)
        found = before.still(entry) if before is not None else None
        if found is None:
            found = _looked_at(entry, clashes, interpreters, again=before is not None)
        if isinstance(found, Crew):
            crews[found.name] = found
        else:
            broken.append(found)
    return Catalog(MappingProxyType(crews), tuple(broken), taken.default)


def log_broken(catalog: Catalog, told: Catalog | None = None) -> None:
    """Tell the owner what is wrong with the crews that cannot run, but for what was wrong in the
    catalog that they were `told` of."""
    known = told.problems() if told is not None else ()
    for problem in catalog.problems():
        if problem not in known:
            logger.error("a crew cannot run: %s", problem)


def _of_the_file(entry: CrewTable, clashes: _Clashes) -> Iterator[Problem]:
    yield from clashes.problems
    yield from entry.problems
    yield from _unknown_tools(entry)


def _unknown_tools(entry: CrewTable) -> Iterator[Problem]:
    for index, tool in enumerate(entry.section.tools if entry.section is not None else ()):
        if tool not in TOOL_NAMES:
            known = ", ".join(sorted(TOOL_NAMES))
            yield Problem(entry.key(f"tools[{index}]"), "is no tool", f"there is {known}")


def _looked_at(
    entry: CrewTable, clashes: _Clashes, interpreters: Interpreters, *, again: bool
) -> Crew | BrokenCrew:
    """What an entry comes to; `again`, with its file of variables read anew if it has one, and
    nothing else is wrong with its table."""
    if again and entry.again is not None:
        entry = entry.again()
    of_file = tuple(_of_the_file(entry, clashes))
    look = _Look(entry, interpreters)
    crew = look.crew()
    if crew is not None and not of_file:
        return crew
    needs_edit = bool(of_file)
    if entry.again is not None:  # what its file of variables is at fault for, needs none
        needs_edit = bool(clashes.problems or any(_unknown_tools(entry)))
    return BrokenCrew(
        None if clashes.name else entry.name,
        (*of_file, *look.problems),
        entry.users,
        None if clashes.bind else entry.bind,
        entry.on_restart,
        edit_at=entry.place if needs_edit else None,
    )


@dataclass
class _Clashes:
    """What an entry wants and another has. `name` and `bind` tell which of its own are not its."""

    problems: list[Problem] = field(default_factory=list)
    name: bool = False
    bind: bool = False


class _Taken:
    """What each crew must have for itself, and who has it."""

    def __init__(self, server: Bind) -> None:
        self.default: str | None = None
        self._names: dict[str, str] = {}
        self._binds: list[tuple[Bind, str]] = [(server, "the daemon itself (server.bind)")]

    def take(self, entry: CrewTable) -> _Clashes:
        """Give an entry what it wants, or the problem that somebody else has it."""
        clashes = _Clashes()
        if entry.name is None:
            return clashes
        if entry.name in self._names:
            clashes.name = True
            fault = f'is "{entry.name}", as is that of {self._names[entry.name]}'
            clashes.problems.append(
                Problem(f"{entry.place}.name", fault, "give one of them another name")
            )
            return clashes
        self._names[entry.name] = entry.place
        if entry.default and self.default is not None:
            fault = f'is true, and "{self.default}" is the default already'
            clashes.problems.append(Problem(entry.key("default"), fault, "leave one of the two"))
        elif entry.default:
            self.default = entry.name
        if entry.bind is not None:
            self._take_bind(entry, entry.bind, clashes)
        return clashes

    def _take_bind(self, entry: CrewTable, bind: Bind, clashes: _Clashes) -> None:
        owner = next((who for other, who in self._binds if _same_place(bind, other)), None)
        if owner is None:
            self._binds.append((bind, f'the crew "{entry.name}"'))
            return
        clashes.bind = True
        fault = f"is where {owner} listens already"
        clashes.problems.append(Problem(entry.key("bind"), fault, "choose another port"))


def _same_place(one: Bind, other: Bind) -> bool:
    """Whether the second of the two could not listen. Port 0 is a free one each time."""
    if one.port != other.port or one.port == 0:
        return False
    hosts = {one.host, other.host}
    return (
        len(hosts) == 1
        or bool(hosts & _EVERYWHERE)
        or ("localhost" in hosts and bool(hosts & _LOCALHOST))
    )


class _Look:
    """One look at what a crew needs, all of it: no fault hides another."""

    def __init__(self, entry: CrewTable, interpreters: Interpreters) -> None:
        self.problems: list[Problem] = []
        self._entry = entry
        self._interpreters = interpreters

    def crew(self) -> Crew | None:
        """The crew; None when its table or what it needs has problems."""
        section = self._entry.section
        if section is None:
            return None
        environment = {k: v.get_secret_value() for k, v in section.environment.items()}
        command, found = section.command, tuple[Input, ...]()
        if section.runner == "crewai":
            command, found = self._crewai(section, environment)
        elif command:
            self._try("command", lambda: check_program(command[0], environment))
        if self.problems or self._entry.problems:
            return None
        return Crew(
            name=section.name,
            worker=WorkerSettings(command, environment, section.memory, section.grace),
            inputs=refined(found, section.inputs),
            max_running=section.max_running,
            queue=section.queue,
            deadline=section.deadline,
            human_deadline=section.human_deadline,
            on_restart=section.on_restart,
            users=section.users,
            tools=section.tools,
            bind=section.bind,
        )

    def _crewai(
        self, section: CrewSection, environment: Mapping[str, str]
    ) -> tuple[tuple[str, ...], tuple[Input, ...]]:
        """The command of a CrewAI project, and the inputs that its files tell."""
        python, folder = section.python, section.project
        if python is not None:
            self._try("python", lambda: self._interpreters.check(python, environment))
        found: tuple[Input, ...] = ()
        if folder is not None and self._try("project", lambda: check_folder(folder)):
            # Most daemons have no such crew, and a parser for YAML is a share of their start.
            from smartlinkd.crews.catalog.crewai_project import read_project  # noqa: PLC0415

            project = read_project(folder)
            found = project.inputs
            for fault in project.faults:
                self._add("project", fault)
        return (str(python), str(ADAPTER), str(folder)), found

    def _try(self, key: str, check: Callable[[], None]) -> bool:
        try:
            check()
        except BadValue as fault:
            self._add(key, fault)
            return False
        return True

    def _add(self, key: str, fault: BadValue) -> None:
        self.problems.append(Problem(self._entry.key(key), fault.fault, fault.remedy))
