"""The inputs that a CrewAI project needs, read from its files without running any of it.

They are the `{placeholders}` of its prompts. The rule is CrewAI's own, on the fields in which it
replaces and no others. The adapter decides which crew the project is (`crewai_adapter/finding.py`).
Sources: CrewAI's guides ("Build your first crew", the YAML of agents and tasks), its modules
`crewai.project.json_loader` and `crewai.project.crew_base`. See docs/decisions/073-catalog.md.
"""

from __future__ import annotations

import ast
import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Final

from smartlinkd.config.problems import quoted_key
from smartlinkd.config.sources import read_file
from smartlinkd.config.values import InputTable, parse_default, require_encodable
from smartlinkd.crews.catalog.checks import LET_US_READ
from smartlinkd.crews.catalog.project_formats import NotReadable, parse_jsonc, parse_yaml
from smartlinkd.crews.crewai_adapter.finding import find
from smartlinkd.crews.crewai_adapter.texts import Unusable
from smartlinkd.crews.model import Input
from smartlinkd.path_checks import mode_of
from smartlinkd.validation import BadValue

AGENT_FIELDS: Final = ("role", "goal", "backstory")
TASK_FIELDS: Final = ("description", "expected_output", "output_file")
MAX_INPUTS: Final = 200
"""Each is a field of a form, and a name in an error's text."""

_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_-]*)\}")


def placeholders(text: str) -> Iterator[str]:
    """Return the names that CrewAI replaces in a text, in order and with repetitions."""
    return (found[1] for found in _PLACEHOLDER.finditer(text))


class InputCollector:
    """Collects the inputs of a project's agents and tasks.

    With any of its `faults` the crew is broken. Each begins with `where` it is.
    """

    def __init__(self) -> None:
        self.faults: list[BadValue] = []
        self._found: dict[str, Input] = {}

    @property
    def inputs(self) -> tuple[Input, ...]:
        """Return all inputs, in the order in which they were found."""
        return tuple(self._found.values())

    def add_agent(self, where: str, agent: object) -> None:
        """Add an agent's inputs. Its `settings` win over the fields beside them."""
        if isinstance(agent, Mapping) and isinstance(agent.get("settings"), Mapping):
            agent = {**agent, **agent["settings"]}
        self._add(where, agent, AGENT_FIELDS)

    def add_agents(self, where: str, group: object) -> None:
        """Add the inputs of `agents.yaml`: agents, by their names."""
        for place, agent in self._by_name(where, group):
            self.add_agent(place, agent)

    def add_tasks(self, where: str, group: object) -> None:
        """Add the inputs of `tasks.yaml`: tasks, by their names."""
        for place, task in self._by_name(where, group):
            self._add(place, task, TASK_FIELDS)

    def add_crew(self, where: str, crew: object) -> list[str]:
        """Add a JSON crew's inputs. Return its agents' names, each of which has its own file."""
        if not isinstance(crew, Mapping):
            self.faults.append(BadValue(f"{where} is no table", "compare it with CrewAI's guide"))
            return []
        self._add_defaults(f"{where}: inputs", crew.get("inputs"))
        tasks, names = crew.get("tasks"), crew.get("agents")
        if not isinstance(tasks, list) or not tasks:
            self.faults.append(BadValue(f"{where} has no list of tasks", 'write "tasks": [{ … }]'))
            tasks = []
        for index, task in enumerate(tasks):
            self._add(f"{where}: tasks[{index}]", task, TASK_FIELDS)
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

    def _add_defaults(self, where: str, values: object) -> None:
        """Add the `inputs` of a JSON crew: defaults, also of inputs that no prompt has."""
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
                told = f"{where}: {quoted_key(name)} {fault.fault}"
                self.faults.append(BadValue(told, fault.remedy))
        self._keep_bound(where)

    def _add(self, where: str, entry: object, fields: Iterable[str]) -> None:
        if entry in (None, ""):  # CrewAI skips it; its author has commented its fields out
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


def merge_inputs(found: Iterable[Input], configured: Iterable[InputTable]) -> tuple[Input, ...]:
    """Return the inputs found, changed as configured, and those that are only configured."""
    inputs = {each.name: each for each in found}
    for entry in configured:
        known = inputs.get(entry.name, Input(entry.name))
        required = known.required if entry.required is None else entry.required
        default = known.default if entry.required is None else entry.default
        inputs[entry.name] = Input(
            entry.name, required, None if required else default, entry.description
        )
    return tuple(inputs.values())


MAX_FILE: Final = 256 * 1024
"""Bytes. PyYAML takes about a second for the largest."""
MAX_AGENTS: Final = 100
"""Of a JSON crew; each is a file to read."""

Parse = Callable[[str], object]

# Read by the crew itself, where they are there.
_READ_BY_THE_CREW = ("pyproject.toml", ".env", "src")


def named_in(code: str) -> dict[str, str]:
    """Return the attributes of the classes in `crew.py` that are constant texts, by name.

    `agents_config` and `tasks_config` name the files that CrewAI reads in the place of
    config/agents.yaml and config/tasks.yaml. The code is not run.
    """
    try:
        with warnings.catch_warnings():
            # A warning about the code would be in our log, without its file's name.
            warnings.simplefilter("ignore")
            tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # running it reports that
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


def read_project(folder: Path) -> InputCollector:
    """Return the inputs of the project in `folder`, and the faults of its files. Blocks.

    The inputs may be incomplete if there are faults.
    """
    reader = _ProjectReader(folder)
    try:
        reader.read()
    except BadValue as fault:
        reader.found.faults.append(fault)
    return reader.found


class _ProjectReader:
    def __init__(self, folder: Path) -> None:
        self.found = InputCollector()
        self._folder = folder

    def read(self) -> None:
        """Read the project. Raises `BadValue` for a fault that leaves nothing to read."""
        for name in _READ_BY_THE_CREW:
            self._check_readable(self._folder / name)
        settings = self._folder / "pyproject.toml"
        if self._exists(settings):
            self._text(settings)  # the adapter reads it without a bound
        crew = self._find()
        if isinstance(crew, Path):
            self._read_json(crew)
        else:
            self._read_classic(self._folder.joinpath("src", *crew.split(".")[:-1]))

    def _find(self) -> Path | str:
        """Return what the adapter would run: a JSON crew's file, or a module in `src`."""
        try:
            return find(self._folder)
        except Unusable as why:
            for package in sorted((self._folder / "src").glob("*")):
                self._check_readable(package)  # a closed one looks empty to it
            fault, _, remedy = str(why).partition("; ")
            raise BadValue(fault, remedy) from None
        # A circle of symbolic links raises OSError or RuntimeError, TOML that is nested too deeply
        # RecursionError (a RuntimeError), and a NUL in a path ValueError.
        except (OSError, RuntimeError, ValueError):
            raise BadValue(
                "cannot be looked through", "see to its pyproject.toml and src"
            ) from None

    def _read_json(self, path: Path) -> None:
        where = self._name(path)
        names = self.found.add_crew(where, self._parsed(path, parse_jsonc))
        if len(names) > MAX_AGENTS:
            raise BadValue(f"{where} has more than {MAX_AGENTS} agents", "make several crews of it")
        for name in dict.fromkeys(names):
            agent = self._agent(path.parent, name)
            if agent is None:
                fault = f"{where} names an agent without a file agents/{quoted_key(name)}.jsonc"
                self.found.faults.append(BadValue(fault, "make that file, or take the name out"))
                continue
            self._add_file(agent, parse_jsonc, self.found.add_agent)

    def _read_classic(self, package: Path) -> None:
        code = package / "crew.py"
        self._check_readable(code)
        named: dict[str, str] = {}
        with suppress(BadValue):  # Python may read what this does not
            named = named_in(self._text(code))
        for name, add in (("agents", self.found.add_agents), ("tasks", self.found.add_tasks)):
            path = package / named.get(f"{name}_config", f"config/{name}.yaml")
            if self._exists(path):
                self._add_file(path, parse_yaml, add)

    def _add_file(self, path: Path, parse: Parse, add: Callable[[str, object], None]) -> None:
        try:
            found = self._parsed(path, parse)
        except BadValue as fault:
            self.found.faults.append(fault)  # and on with the next file
            return
        add(self._name(path), found)

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
        """Raise a `BadValue` if the path is there and may not be read."""
        if self._exists(path):
            wanted = os.R_OK | os.X_OK if path.is_dir() else os.R_OK
            if not os.access(path, wanted):
                raise self._unreadable(path, "Permission denied")

    def _exists(self, path: Path) -> bool:
        """Return True if the path is there. Raises `BadValue` if it may not be looked at."""
        try:
            return mode_of(path) is not None
        except OSError as error:
            raise self._unreadable(path, str(error.strerror)) from None

    def _unreadable(self, path: Path, why: str) -> BadValue:
        return BadValue(f"{self._name(path)} cannot be read ({why})", LET_US_READ)

    def _name(self, path: Path) -> str:
        """Return the path below the project's folder."""
        for folder in (self._folder, self._folder.resolve()):
            if path.is_relative_to(folder):
                return str(path.relative_to(folder))
        return str(path)
