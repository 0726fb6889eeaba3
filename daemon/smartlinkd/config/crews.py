"""The `[[crews]]` tables: their keys, and each table's own problems.

A faulty crew does not keep the daemon from starting. Its entry keeps its problems, and the values
that could be read: other crews go on, holders of its tokens get an answer, and its other faults are
found as well. Checks that need other crews or the disk are in
`smartlinkd/crews/catalog/catalog.py`. See docs/decisions/045-broken-crews.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, Field, PlainValidator, SecretStr, ValidationError

from smartlinkd.config import values
from smartlinkd.config.base import DAY, GIB, MIB, ListOf, OptionalPath, Section, Words
from smartlinkd.config.problems import (
    Problem,
    Sections,
    example_of,
    first_of_each_key,
    from_pydantic,
    toml_remedy,
)
from smartlinkd.net.addresses import Bind, parse_optional_bind
from smartlinkd.validation import BadValue, require_text

MOST_CREWS = 64  # each may have an address of its own, and a queue in memory
MOST_VARIABLES = 128
LONGEST_GRACE = 300  # seconds
LARGEST_ENVIRONMENT = 256 * 1024  # bytes of all names and values; Linux takes 2 MiB with arguments
_ENVIRONMENT_KEYS = {"environment", "environment_file"}
_KEYS_OF_RUNNERS = {"command": ("command",), "crewai": ("project", "python")}


_Entry = TypeVar("_Entry", str, values.InputTable)


def _require_unique(given: tuple[_Entry, ...]) -> tuple[_Entry, ...]:
    names = [each if isinstance(each, str) else each.name for each in given]
    if len(set(names)) < len(names):
        raise BadValue("names one twice", "keep one of them")
    return given


Slug = Annotated[str, PlainValidator(values.parse_slug)]
Variables = dict[
    Annotated[str, PlainValidator(values.parse_variable)],
    Annotated[SecretStr, PlainValidator(values.parse_variable_value)],
]
OnRestart = Literal["fail", "rerun"]
OwnBind = Annotated[
    Bind | None, PlainValidator(parse_optional_bind), Field(examples=["127.0.0.1:8801"])
]
Users = Annotated[
    ListOf[Slug], Field(examples=[["anna", "shop-frontend"]]), AfterValidator(_require_unique)
]


class CrewSection(Section):
    """One crew. `name` and `runner` have no default; the runner needs further keys."""

    name: Slug = Field(examples=["deal-post"])
    runner: Literal["command", "crewai"] = Field(examples=["command"])
    command: Words = Field(default=(), examples=[["/usr/bin/python3", "/srv/crews/greeter.py"]])
    project: OptionalPath = Field(default=None, examples=["/srv/crews/research"])
    python: OptionalPath = Field(default=None, examples=["/srv/crews/research/.venv/bin/python"])
    default: bool = False
    bind: OwnBind = None
    inputs: Annotated[
        ListOf[Annotated[values.InputTable, PlainValidator(values.parse_input)]],
        AfterValidator(_require_unique),
    ] = Field(default=(), examples=[["topic", {"name": "language", "default": "en"}]])
    max_running: int = Field(default=4, ge=1, le=256, description="executions")
    queue: int = Field(default=100, ge=0, le=10_000, description="executions")
    deadline: float = Field(default=1800.0, ge=1, le=7 * DAY, description="seconds")
    human_deadline: float = Field(default=float(DAY), ge=1, le=30 * DAY, description="seconds")
    memory: int = Field(default=GIB, ge=16 * MIB, le=256 * GIB, description="bytes")
    # Below a second even a worker that obeys would be killed for being slow.
    grace: float = Field(default=10.0, ge=1, le=LONGEST_GRACE, description="seconds")
    on_restart: OnRestart = "fail"
    environment: Variables = Field(
        default_factory=dict,
        max_length=MOST_VARIABLES,
        examples=[{"OPENAI_BASE_URL": "http://127.0.0.1:11434/v1"}],
    )
    environment_file: OptionalPath = Field(
        default=None, examples=["/run/credentials/smartlinkd.service/smartlinkd_research.env"]
    )
    users: Users = ()
    tools: Annotated[
        ListOf[Annotated[str, PlainValidator(require_text)]], AfterValidator(_require_unique)
    ] = Field(default=(), examples=[["convert_links"]])


@dataclass(frozen=True)
class CrewTable:
    """One checked `[[crews]]` table. Its crew can run only without `problems`.

    `section` has the values that could be read, and is None if the name could not. A runner that
    could not be read counts as "command" in it.
    """

    place: str
    name: str | None
    section: CrewSection | None = field(repr=False)
    problems: tuple[Problem, ...] = ()
    has_environment: bool = True
    """False if the runner or the worker's variables (one may be PATH) could not be read."""

    def key(self, key: str) -> str:
        """Return the name of one of its keys in a problem."""
        return _name_key(self.place, self.name, key)


@dataclass
class CrewDraft:
    """A `[[crews]]` table before its check. `variables` are those of its `environment_file`."""

    place: str
    given: Mapping[str, Any] = field(repr=False)
    is_table: bool = True
    variables: Mapping[str, SecretStr] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    @property
    def name(self) -> str | None:
        """The crew's name, or None if it is missing or wrong."""
        try:
            return values.parse_slug(self.given.get("name"))
        except BadValue:
            return None

    def key(self, key: str) -> str:
        """Return the name of one of its keys in a problem."""
        return _name_key(self.place, self.name, key)

    def add_problem(self, key: str, fault: str, remedy: str) -> None:
        """Add a problem of one of its keys."""
        self.problems.append(Problem(self.key(key), fault, remedy))


def draft_crews(found: object) -> list[CrewDraft]:
    """Return a draft for each thing under `crews` in the file. One that is no table has a problem.

    Variables of the environment set no crews: no name could say which of the tables is meant.
    """
    if not isinstance(found, (list, tuple)):
        remedy = "write [[crews]], with two brackets, above the keys of each crew"
        return [_no_table("crews", "must be tables", remedy)]
    drafts = []
    for index, table in enumerate(found):
        place = f"crews[{index}]"
        if index >= MOST_CREWS:
            fault = f"is one of more than {MOST_CREWS}"
            drafts.append(_no_table(place, fault, "take some of them out"))
        elif not isinstance(table, Mapping):
            drafts.append(_no_table(place, "must be a table", "write [[crews]] above its keys"))
        else:
            drafts.append(CrewDraft(place, table))
    return drafts


def check_crew(draft: CrewDraft, sections: Sections) -> CrewTable:
    """Return the checked entry of a draft.

    Args:
        sections: all tables of the configuration, to say where an unknown key belongs.
    """
    section, faulty, has_environment = None, set[str](), not draft.problems
    if draft.is_table:
        try:
            section = CrewSection.model_validate(draft.given)
        except ValidationError as error:
            faulty = {str(detail["loc"][0]) for detail in error.errors(include_url=False)}
            draft.problems += from_pydantic(
                error, "crews", sections, lambda _, key: draft.key(key), toml_remedy
            )
        draft.problems += _runner_problems(draft)
    sound = {key: value for key, value in draft.given.items() if key not in faulty}
    if faulty and "name" not in faulty:
        section = CrewSection.model_validate({"runner": "command", **sound})
    has_environment = has_environment and not faulty & {"runner", *_ENVIRONMENT_KEYS}
    if section is not None and has_environment:
        section = _add_variables(draft, section)
    problems = tuple(first_of_each_key(draft.problems))
    return CrewTable(draft.place, draft.name, section, problems, has_environment)


def _no_table(place: str, fault: str, remedy: str) -> CrewDraft:
    return CrewDraft(place, {}, is_table=False, problems=[Problem(place, fault, remedy)])


def _runner_problems(draft: CrewDraft) -> Iterator[Problem]:
    """Yield a problem for each key that the runner needs and lacks, or has and cannot use."""
    runner = draft.given.get("runner")
    if not isinstance(runner, str) or runner not in _KEYS_OF_RUNNERS:
        return
    for key in _KEYS_OF_RUNNERS[runner]:
        if not draft.given.get(key):
            yield Problem(
                draft.key(key),
                f'is missing, and is needed by runner = "{runner}"',
                toml_remedy("crews", key, example_of(CrewSection.model_fields[key])),
            )
    (other,) = _KEYS_OF_RUNNERS.keys() - {runner}
    for key in _KEYS_OF_RUNNERS[other]:
        if draft.given.get(key):
            yield Problem(
                draft.key(key),
                f'is of no use to runner = "{runner}"',
                f'take it out, or write runner = "{other}"',
            )


def _add_variables(draft: CrewDraft, section: CrewSection) -> CrewSection:
    """Return the section with the variables of its `environment_file` added to its own."""
    for name in sorted(section.environment.keys() & draft.variables.keys()):
        fault = "stands in environment_file, too"
        draft.add_problem(f"environment.{name}", fault, "keep one of the two")
    environment = {**draft.variables, **section.environment}
    size = sum(len(name) + len(v.get_secret_value().encode()) for name, v in environment.items())
    if size > LARGEST_ENVIRONMENT:
        draft.add_problem(
            "environment",
            f"comes to more than {LARGEST_ENVIRONMENT} bytes",
            "put what is large into files, and name those",
        )
    return section.model_copy(update={"environment": environment})


def _name_key(place: str, name: str | None, key: str) -> str:
    return f"{place}.{key}" if name is None else f'crew "{name}": {key}'
