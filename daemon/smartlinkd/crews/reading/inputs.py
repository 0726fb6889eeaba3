"""Which inputs a CrewAI project needs: pure rules, on what its files say.

The problem: a crew's inputs are written nowhere. They are the `{placeholders}` in its prompts, and
running the project to ask for them costs seconds and runs somebody's code.

The choice: CrewAI's own rule of replacing, on the fields that it replaces in and on no others. A
looser rule ("anything in braces") takes the JSON that an author shows to a model for an input, and
then no client can start the crew.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from smartlinkd.config.crew_values import InputTable, given_default, whole
from smartlinkd.config.problems import quoted_key
from smartlinkd.crews.model import Input
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
                self._found[name] = Input(whole(name), required=False, default=given_default(value))
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
