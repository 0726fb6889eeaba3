"""The `[[crews]]` tables: their keys, and each table's own faults.

The problem: a daemon that does not start because somebody's new crew has a wrong number is worse
than one without that crew. But a fault has to be told as well as any other.

The choice: an entry keeps its problems, in the same form as those of the rest of the file, and what
could be read nevertheless (its name, users, address), so that the others can go on, those who hold
a token of it still get an answer, and its other faults are told as well. A file of variables may be
there later than the daemon, so an entry that lacks nothing else can be had again. What needs a look
at other crews or at the disk is not for here: see `smartlinkd/crews/catalog/catalog.py`.

Variables of the environment cannot set crews: there is no telling which of the tables
`SMARTLINKD_CREWS__NAME` would mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PlainValidator, SecretStr, ValidationError

from smartlinkd.config import crew_values, values
from smartlinkd.config.problems import (
    Problem,
    Sections,
    from_pydantic,
    one_a_key,
    quoted_key,
    written,
)
from smartlinkd.config.section import DAY, GIB, MIB, MOST_ENTRIES, Section
from smartlinkd.net.addresses import Bind, parse_optional_bind
from smartlinkd.validation import BadValue, require_text

MOST_CREWS = 64  # each may have an address of its own, and a queue in memory
LONGEST_GRACE = 300  # seconds
LARGEST_ENVIRONMENT = 256 * 1024  # bytes of all names and values; Linux takes 2 MiB with arguments
# Without them nothing can be said of others: a program is looked for on the environment's PATH.
_NEEDED_TO_LOOK_ON = {"name", "runner", "environment", "environment_file"}

Slug = Annotated[str, PlainValidator(crew_values.slug)]
Variables = dict[
    Annotated[str, PlainValidator(crew_values.variable)],
    Annotated[SecretStr, PlainValidator(crew_values.variable_value)],
]


def _names(given: tuple[str, ...]) -> tuple[str, ...]:
    crew_values.each_once(given)
    return given


def _inputs(given: tuple[crew_values.InputTable, ...]) -> tuple[crew_values.InputTable, ...]:
    crew_values.each_once([each.name for each in given])
    return given


OnRestart = Literal["fail", "rerun"]
OwnBind = Annotated[
    Bind | None, PlainValidator(parse_optional_bind), Field(examples=["127.0.0.1:8801"])
]
Users = Annotated[
    tuple[Slug, ...],
    Field(strict=False, max_length=MOST_ENTRIES, examples=[["anna", "shop-frontend"]]),
    AfterValidator(_names),
]


class CrewSection(Section):
    """One crew. `name` and `runner` have no default; which others are needed is the runner's."""

    name: Slug = Field(examples=["deal-post"])
    runner: Literal["command", "crewai"] = Field(examples=["command"])
    command: tuple[Annotated[str, PlainValidator(crew_values.argument)], ...] = Field(
        default=(),
        strict=False,
        max_length=MOST_ENTRIES,
        examples=[["/usr/bin/python3", "/srv/crews/greeter.py"]],
    )
    project: Annotated[Path | None, PlainValidator(values.optional_path)] = Field(
        default=None, examples=["/srv/crews/research"]
    )
    python: Annotated[Path | None, PlainValidator(values.optional_path)] = Field(
        default=None, examples=["/srv/crews/research/.venv/bin/python"]
    )
    default: bool = False
    bind: OwnBind = None
    inputs: Annotated[
        tuple[Annotated[crew_values.InputTable, PlainValidator(crew_values.given_input)], ...],
        Field(strict=False),
        AfterValidator(_inputs),
    ] = Field(
        default=(),
        max_length=MOST_ENTRIES,
        examples=[["topic", {"name": "language", "default": "en"}]],
    )
    max_running: int = Field(default=4, ge=1, le=256, description="executions")
    queue: int = Field(default=100, ge=0, le=10_000, description="executions")
    deadline: float = Field(default=1800.0, ge=1, le=7 * DAY, description="seconds")
    human_deadline: float = Field(default=float(DAY), ge=1, le=30 * DAY, description="seconds")
    memory: int = Field(default=GIB, ge=16 * MIB, le=256 * GIB, description="bytes")
    # Below a second a worker that does as it is told is killed for being slow, too.
    grace: float = Field(default=10.0, ge=1, le=LONGEST_GRACE, description="seconds")
    on_restart: OnRestart = "fail"
    environment: Variables = Field(
        default_factory=dict,
        max_length=crew_values.MOST_VARIABLES,
        examples=[{"OPENAI_BASE_URL": "http://127.0.0.1:11434/v1"}],
    )
    environment_file: Annotated[Path | None, PlainValidator(values.optional_path)] = Field(
        default=None, examples=["/run/credentials/smartlinkd.service/smartlinkd_research.env"]
    )
    users: Users = ()
    tools: Annotated[
        tuple[Annotated[str, PlainValidator(require_text)], ...],
        Field(strict=False),
        AfterValidator(_names),
    ] = Field(default=(), max_length=MOST_ENTRIES, examples=[["convert_links"]])


class _Face(Section):
    """What counts of a crew although something else is wrong: who calls it, and where, and what
    becomes of what it was at."""

    default: bool = False
    bind: OwnBind = None
    users: Users = ()
    on_restart: OnRestart = "fail"


@dataclass(frozen=True)
class CrewTable:
    """One `[[crews]]` table. It is one to run only without `problems`.

    All but `place`, where it stands in the file, and `problems` is what could be read, also with
    problems. Without `section` there is not enough to look for further ones: who runs it, and with
    which environment.
    """

    place: str
    name: str | None
    section: CrewSection | None = field(repr=False)
    problems: tuple[Problem, ...] = ()
    users: tuple[str, ...] = ()
    bind: Bind | None = None
    default: bool = False
    on_restart: OnRestart = "fail"
    again: Callable[[], CrewTable] | None = field(default=None, repr=False, compare=False)
    """What it is when its `environment_file` is read again, where its table is right otherwise;
    None for one without. Blocks."""

    def key(self, key: str) -> str:
        """What a problem with this key is told under."""
        return _told(self.place, self.name, key)


@dataclass
class CrewDraft:
    """A crew while it is put together. `variables` are those of its `environment_file`."""

    place: str
    given: Mapping[str, Any] = field(repr=False)
    is_table: bool = True
    variables: Mapping[str, SecretStr] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    again: Callable[[], CrewDraft] | None = field(default=None, repr=False)
    """The same one with that file read again. Blocks."""

    @property
    def name(self) -> str | None:
        """Its name, when that is a good one."""
        try:
            return crew_values.slug(self.given.get("name"))
        except BadValue:
            return None

    def key(self, key: str) -> str:
        """What a problem with this key is told under."""
        return _told(self.place, self.name, key)

    def add(self, key: str, fault: str, remedy: str) -> None:
        """Remember what is wrong with a key."""
        self.problems.append(Problem(self.key(key), fault, remedy))


def drafts(found: object) -> list[CrewDraft]:
    """What stands under `crews` in the file, one by one. A thing that is no table is a problem."""
    if not isinstance(found, (list, tuple)):
        remedy = "write [[crews]], with two brackets, above the keys of each crew"
        return [_no_table("crews", "must be tables", remedy)]
    return [_draft(f"crews[{index}]", one, index) for index, one in enumerate(found)]


def checked(draft: CrewDraft, sections: Sections) -> CrewTable:
    """The entry that a draft comes to. `sections` are all there are, to say where a key belongs."""
    section, faulty, has_environment = None, set[str](), not draft.problems
    if draft.is_table:
        try:
            section = CrewSection.model_validate(draft.given)
        except ValidationError as error:
            faulty = {str(detail["loc"][0]) for detail in error.errors(include_url=False)}
            draft.problems += from_pydantic(
                error, "crews", sections, lambda _, key: draft.key(key), _remedy
            )
        draft.problems += _conflicts(draft)
    sound = {key: value for key, value in draft.given.items() if key not in faulty}
    if faulty and not faulty & _NEEDED_TO_LOOK_ON:
        section = CrewSection.model_validate(sound)
    own = [each for each in draft.problems if each.key != draft.key("environment_file")]
    if section is not None:
        section = _with_variables(draft, section) if has_environment else None
    face = _Face.model_validate({key: sound[key] for key in sound.keys() & _Face.model_fields})
    again = None if own else draft.again  # else its table has to be edited
    return CrewTable(
        draft.place,
        draft.name,
        section,
        tuple(one_a_key(draft.problems)),
        users=face.users,
        bind=face.bind,
        default=face.default,
        on_restart=face.on_restart,
        again=None if again is None else partial(_checked_again, again, sections),
    )


def _checked_again(again: Callable[[], CrewDraft], sections: Sections) -> CrewTable:
    return checked(again(), sections)


def _draft(place: str, one: object, index: int) -> CrewDraft:
    if index >= MOST_CREWS:
        return _no_table(place, f"is one of more than {MOST_CREWS}", "take some of them out")
    if not isinstance(one, Mapping):
        return _no_table(place, "must be a table", "write [[crews]] above its keys")
    return CrewDraft(place, one)


def _no_table(place: str, fault: str, remedy: str) -> CrewDraft:
    return CrewDraft(place, {}, is_table=False, problems=[Problem(place, fault, remedy)])


def _conflicts(draft: CrewDraft) -> Iterator[Problem]:
    """What the runner needs and is not there, and what is there and of no use to it."""
    uses = {"command": ("command",), "crewai": ("project", "python")}
    runner = draft.given.get("runner")
    if not isinstance(runner, str) or runner not in uses:
        return
    for key in uses[runner]:
        if not draft.given.get(key):
            example = CrewSection.model_fields[key].examples
            yield Problem(
                draft.key(key),
                f'is missing, and is needed by runner = "{runner}"',
                _remedy("crews", key, example[0] if example else ""),
            )
    (other,) = uses.keys() - {runner}
    for key in uses[other]:
        if draft.given.get(key):
            yield Problem(
                draft.key(key),
                f'is of no use to runner = "{runner}"',
                f'take it out, or write runner = "{other}"',
            )


def _with_variables(draft: CrewDraft, section: CrewSection) -> CrewSection:
    """The section with the variables of its file beside those that stand in it."""
    for name in sorted(section.environment.keys() & draft.variables.keys()):
        draft.add(f"environment.{name}", "stands in environment_file, too", "keep one of the two")
    together = {**draft.variables, **section.environment}
    size = sum(len(name) + len(v.get_secret_value().encode()) for name, v in together.items())
    if size > LARGEST_ENVIRONMENT:
        draft.add(
            "environment",
            f"comes to more than {LARGEST_ENVIRONMENT} bytes",
            "put what is large into files, and name those",
        )
    return section.model_copy(update={"environment": together})


def _told(place: str, name: str | None, key: str) -> str:
    return f"{place}.{key}" if name is None else f'crew "{name}": {key}'


def _remedy(_: str, key: str, example: object) -> str:
    return f"for example {quoted_key(key)} = {written(example)}"
