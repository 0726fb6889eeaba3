"""Read what a CrewAI project's files say of its inputs, without running anything of it.

What the crew is, is for the adapter to say, which will run it (`crewai_adapter/finding.py`):

* a JSON crew: `crew.jsonc` or `crew.json`, and a file in `agents/` for each agent that it names;
* a classic one: `src/<package>/crew.py`, and beside it `config/agents.yaml` and
  `config/tasks.yaml`, or what the class in it names. Agents and tasks may also be made in
  `crew.py`; what these need only the project's owner can say.

Sources: CrewAI's guides ("Build your first crew", and the YAML configuration of agents and tasks);
its loaders `crewai.project.json_loader` and `crewai.project.crew_base`.

All of it blocks. Files are opened without waiting, have to be regular ones, and have a greatest
size: PyYAML takes about a second for the largest.
"""

from __future__ import annotations

import ast
import os
import re
import stat
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Final

from smartlinkd.config.problems import quoted_key
from smartlinkd.config.sources import read_file
from smartlinkd.config.values import InputTable, parse_default, require_encodable
from smartlinkd.crews.catalog.checks import LET_US_READ
from smartlinkd.crews.catalog.project_formats import NotReadable, parse_jsonc, parse_yaml
from smartlinkd.crews.crew import Input
from smartlinkd.crews.crewai_adapter.finding import find
from smartlinkd.crews.crewai_adapter.words import Unusable
from smartlinkd.paths import mode_of
from smartlinkd.validation import BadValue

AGENT_FIELDS: Final = ("role", "goal", "backstory")
TASK_FIELDS: Final = ("description", "expected_output", "output_file")
# Each is a field of a form, and a name in an error's text.
MAX_INPUTS: Final = 200

_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_-]*)\}")


def placeholders(text: str) -> Iterator[str]:
    """The names that CrewAI replaces in a text, in order; one may come more than once."""
    return (found[1] for found in _PLACEHOLDER.finditer(text))


class Search:
    """What is found while a project's agents and tasks are looked through.

    `faults` are what would keep CrewAI from using them; each begins with a place in `where`.
    """

    def __init__(self) -> None:
        self.faults: list[BadValue] = []
        self._found: dict[str, Input] = {}

    @property
    def inputs(self) -> tuple[Input, ...]:
        """All inputs, in the order in which they were found."""
        return tuple(self._found.values())

    def agent(self, where: str, agent: object) -> None:
        """Look through an agent. What stands in its `settings` wins over what stands beside it."""
        if isinstance(agent, Mapping) and isinstance(agent.get("settings"), Mapping):
            agent = {**agent, **agent["settings"]}
        self._look(where, agent, AGENT_FIELDS)

    def agents_of(self, where: str, group: object) -> None:
        """Look through what `agents.yaml` holds: agents, by their names."""
        for place, agent in self._by_name(where, group):
            self.agent(place, agent)

    def tasks_of(self, where: str, group: object) -> None:
        """Look through what `tasks.yaml` holds: tasks, by their names."""
        for place, task in self._by_name(where, group):
            self._task(place, task)

    def crew(self, where: str, crew: object) -> list[str]:
        """Look through a JSON crew; its agents' names, each of which is a file of its own."""
        if not isinstance(crew, Mapping):
            self.faults.append(BadValue(f"{where} is no table", "compare it with CrewAI's guide"))
            return []
        self._defaults(f"{where}: inputs", crew.get("inputs"))
        tasks, names = crew.get("tasks"), crew.get("agents")
        if not isinstance(tasks, list) or not tasks:
            self.faults.append(BadValue(f"{where} has no list of tasks", 'write "tasks": [{ … }]'))
            tasks = []
        for index, task in enumerate(tasks):
            self._task(f"{where}: tasks[{index}]", task)
        if not isinstance(names, list) or not names or not all(isinstance(n, str) for n in names):
            fault = f"{where} has no list of agents' names"
            self.faults.append(BadValue(fault, 'write "agents": ["NAME"], one for each file'))
            return []
        return names

    def _by_name(self, where: str, group: object) -> Iterator[tuple[str, object]]:
        if isinstance(group, Mapping):
            for name, entry in group.items():
                yield f"{where}: {quoted_key(str(name))}", entry
        elif group is not None:
            self.faults.append(
                BadValue(f"{where} is no table", "write its entries as NAME: and fields")
            )

    def _task(self, where: str, task: object) -> None:
        """Look through a task."""
        self._look(where, task, TASK_FIELDS)

    def _defaults(self, where: str, values: object) -> None:
        """Take the `inputs` of a JSON crew: defaults, also of what no prompt has."""
        if values is None:
            return
        if not isinstance(values, Mapping):
            self.faults.append(BadValue(f"{where} is no table", "write it as { name: default }"))
            return
        for name, value in values.items():
            try:
                self._found[name] = Input(
                    require_encodable(name), required=False, default=parse_default(value)
                )
            except BadValue as fault:
                remedy = fault.remedy or "make several inputs of it"
                self.faults.append(BadValue(f"{where}: {quoted_key(name)} {fault.fault}", remedy))
        self._keep_bound(where)

    def _look(self, where: str, entry: object, fields: Iterable[str]) -> None:
        if entry in (None, ""):  # CrewAI passes it over; its author has commented its fields out
            return
        if not isinstance(entry, Mapping):
            self.faults.append(BadValue(f"{where} is no table", "write its fields below its name"))
            return
        for field in fields:
            text = entry.get(field)
            if isinstance(text, str):
                for name in placeholders(text):
                    self._found.setdefault(name, Input(name))
            elif text is not None:
                fault = f"{where} has a {field} that is no text"
                self.faults.append(BadValue(fault, "put it in quotes (a { begins a table in YAML)"))
        self._keep_bound(where)

    def _keep_bound(self, where: str) -> None:
        if len(self._found) > MAX_INPUTS:
            self._found = dict(list(self._found.items())[:MAX_INPUTS])
            fault = f"{where} brings the inputs to more than {MAX_INPUTS}"
            self.faults.append(BadValue(fault, "pass what belongs together as one input"))


def refined(found: Iterable[Input], configured: Iterable[InputTable]) -> tuple[Input, ...]:
    """The inputs found, with what the configuration says of them, and those that only it has."""
    inputs = {each.name: each for each in found}
    for entry in configured:
        known = inputs.get(entry.name, Input(entry.name))
        required = known.required if entry.required is None else entry.required
        default = known.default if entry.required is None else entry.default
        inputs[entry.name] = Input(
            entry.name, required, None if required else default, entry.description
        )
    return tuple(inputs.values())


MAX_FILE: Final = 256 * 1024  # bytes
MAX_AGENTS: Final = 100  # of a JSON crew: files to read

MOST_PARTS: Final = 64  # of a key of pyproject.toml

Parse = Callable[[str], object]

# Names with dots between. Possessive, and no name begins after a backslash, since each place is
# tried as a beginning.
_NAME = r"""(?:[\w-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')"""
_TOO_DEEP = re.compile(rf"(?<![\w\\-])(?:{_NAME}[ \t]*+\.[ \t]*+){{{MOST_PARTS}}}")
# What the crew itself will read, where it is there. Of a folder, also what is in it.
_READ_BY_THE_CREW = ("pyproject.toml", ".env", "src")


def named_in(code: str) -> dict[str, str]:
    """The files that a class of `crew.py` names in the place of config/agents.yaml, tasks.yaml, as
    CrewAI does: by its attributes `agents_config`, `tasks_config`. The code is read, and not run.
    """
    try:
        with warnings.catch_warnings():
            # A warning of what is in it would be nameless, and in our log at each look.
            warnings.simplefilter("ignore")
            tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # whoever runs it tells of it
        return {}
    named: dict[str, str] = {}
    for statement in chain.from_iterable(
        each.body for each in ast.walk(tree) if isinstance(each, ast.ClassDef)
    ):
        match statement:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(path)))
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=str(path)))
            ):
                named[name] = path
    return named


@dataclass(frozen=True)
class Project:
    """What a project's files say. With `faults`, the inputs are not to be relied on."""

    inputs: tuple[Input, ...]
    faults: tuple[BadValue, ...] = ()


def read_project(folder: Path) -> Project:
    """The inputs of the project in `folder`, and what is wrong with its files."""
    reading = _Reading(folder)
    try:
        reading.read()
    except BadValue as fault:
        reading.search.faults.append(fault)
    return Project(reading.search.inputs, tuple(reading.search.faults))


class _Reading:
    def __init__(self, folder: Path) -> None:
        self.search = Search()
        self._folder = folder

    def read(self) -> None:
        """Look through the project. Raises `BadValue` for what leaves nothing to look through."""
        for name in _READ_BY_THE_CREW:
            self._check_readable(self._folder / name)
        if self._exists(self._folder / "pyproject.toml"):
            self._check_toml(self._text(self._folder / "pyproject.toml"))
        crew = self._find()
        if isinstance(crew, Path):
            self._read_json(crew)
        else:
            self._read_classic(self._folder.joinpath("src", *crew.split(".")[:-1]))

    def _check_toml(self, text: str) -> None:
        """Before the adapter reads it unbounded: tomllib remembers each beginning of a key."""
        if _TOO_DEEP.search(text):
            raise BadValue(f"pyproject.toml has a key of over {MOST_PARTS} parts", "mend that file")

    def _find(self) -> Path | str:
        """What the adapter will run: a JSON crew's file, or a module in `src`."""
        try:
            return find(self._folder)
        except Unusable as why:
            for package in sorted((self._folder / "src").glob("*")):
                self._check_readable(package)  # it sees nothing in one that is closed to us
            fault, _, remedy = str(why).partition("; ")
            raise BadValue(
                fault, remedy or "name the folder that `crewai create` has made"
            ) from None
        # Links that lead in a circle are one or the other, by where they are; so is TOML that is
        # nested too deeply. A number in it may have more digits than Python writes.
        except (OSError, RuntimeError, ValueError):
            raise BadValue(
                "cannot be looked through", "see to its pyproject.toml and src"
            ) from None

    def _read_json(self, path: Path) -> None:
        where = self._name(path)
        names = self.search.crew(where, self._parsed(path, parse_jsonc))
        if len(names) > MAX_AGENTS:
            raise BadValue(f"{where} has more than {MAX_AGENTS} agents", "make several crews of it")
        for name in dict.fromkeys(names):
            agent = self._agent(path.parent, name)
            if agent is None:
                fault = f"{where} names an agent without a file agents/{quoted_key(name)}.jsonc"
                self.search.faults.append(BadValue(fault, "make that file, or take the name out"))
                continue
            self._look_through(agent, parse_jsonc, self.search.agent)

    def _read_classic(self, package: Path) -> None:
        self._check_readable(package)
        code = package / "crew.py"
        self._check_readable(code)
        named: dict[str, str] = {}
        with suppress(BadValue):  # whether it can be run is not looked at
            named = named_in(self._text(code))
        for name, look in (("agents", self.search.agents_of), ("tasks", self.search.tasks_of)):
            path = package / named.get(f"{name}_config", f"config/{name}.yaml")
            if self._exists(path):
                self._look_through(path, parse_yaml, look)

    def _look_through(self, path: Path, parse: Parse, look: Callable[[str, object], None]) -> None:
        try:
            found = self._parsed(path, parse)
        except BadValue as fault:
            self.search.faults.append(fault)  # and on with the next file
            return
        look(self._name(path), found)

    def _agent(self, root: Path, name: str) -> Path | None:
        paths = (root / "agents" / f"{name}.{ending}" for ending in ("jsonc", "json"))
        return next((path for path in paths if self._exists(path)), None)

    def _parsed(self, path: Path, parse: Parse) -> object:
        text = self._text(path)
        try:
            return parse(text)
        except NotReadable as why:
            raise BadValue(f"{self._name(path)} {why}", "mend that file") from None

    def _text(self, path: Path) -> str:
        try:
            return read_file(path, MAX_FILE)[0]
        except BadValue as fault:
            raise BadValue(f"{self._name(path)} {fault.fault}", fault.remedy) from None

    def _check_readable(self, path: Path) -> None:
        """Raise a `BadValue` when something is there and may not be read."""
        mode = self._mode_of(path)
        if mode is not None:
            wanted = os.R_OK | os.X_OK if stat.S_ISDIR(mode) else os.R_OK
            if not os.access(path, wanted):
                raise self._unreadable(path, "Permission denied")

    def _exists(self, path: Path) -> bool:
        return self._mode_of(path) is not None

    def _mode_of(self, path: Path) -> int | None:
        """See `paths.mode_of`; raises `BadValue` in the place of OSError."""
        try:
            return mode_of(path)
        except OSError as error:
            raise self._unreadable(path, str(error.strerror)) from None

    def _unreadable(self, path: Path, why: str) -> BadValue:
        return BadValue(f"{self._name(path)} cannot be read ({why})", LET_US_READ)

    def _name(self, path: Path) -> str:
        """A path as the project's owner would say it."""
        for folder in (self._folder, self._folder.resolve()):
            if path.is_relative_to(folder):
                return str(path.relative_to(folder))
        return str(path)
