"""From a file and the environment to `Settings`, or to all that is wrong with them.

The order: the TOML file, then the variables over it, then the files that hold secrets and the
service manager's credentials, then the rules. Nothing stops at the first fault: each step adds its
problems and hands on what it understood. Only a file that is no TOML ends it early, since every
required key would then be "missing", which is not what is wrong. What is wrong with a crew is kept
with that crew, and is raised only in the company of other faults.

Rejected: pydantic-settings. It stops at a variable that is no JSON, knows neither unknown
variables nor files of secrets, and reports by location instead of by the operator's own words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from smartlinkd.config import checks, credentials, crews
from smartlinkd.config.draft import Draft
from smartlinkd.config.environment import override, variable_for
from smartlinkd.config.files import read_environments, read_secrets, read_tables
from smartlinkd.config.problems import (
    MANY,
    Problem,
    from_pydantic,
    one_a_key,
    quoted_key,
    unknown_section,
)
from smartlinkd.config.section import Section
from smartlinkd.config.settings import SECTIONS, TABLES, Settings, State

_STATE_DIRECTORY = variable_for("state", "directory")


class ConfigError(Exception):
    """The configuration cannot be used.

    Attributes:
        problems: all of its faults. The error's text has a line for each.
        rest: the settings without the wrong keys, for a look at the others. None if nothing of the
            configuration could be read, or not where the state directory is.
    """

    def __init__(self, problems: Sequence[Problem], rest: Settings | None = None) -> None:
        self.problems = tuple(problems)
        self.rest = rest
        super().__init__("\n".join(map(str, self.problems)))


def load(path: Path | str, environ: Mapping[str, str], *, by_hand: bool = False) -> Settings:
    """The settings in the TOML file `path`, overridden by `environ`.

    `by_hand` is for commands that judge a configuration for a service which they are not: without
    credentials of their own they see those that the service would be given, and stand-ins for those
    that are encrypted.
    Raises `ConfigError` with every problem that was found.
    """
    draft = Draft()
    found = read_tables(draft, Path(path))
    if found is not None:
        _take_tables(draft, found)
    override(draft, environ)
    if found is None:
        raise ConfigError(one_a_key(draft.problems))
    given = credentials.of_service(environ)
    if by_hand and not given:
        given = credentials.beside(Path(path))
    read_secrets(draft, given)
    read_environments(draft, given)
    return _settings(draft)


def state_directory(path: Path | str, environ: Mapping[str, str]) -> Path:
    """Where the daemon with this configuration keeps its state, and nothing else of it.

    So its owner's shell can speak to a running daemon without being shown its secrets, and also
    while the file is being changed. Raises `ConfigError` with what is wrong with this one section.
    """
    draft = Draft()
    found = read_tables(draft, Path(path))
    if found is None:
        raise ConfigError(draft.problems)
    _take_tables(draft, {"state": found.get("state", {})})
    if draft.problems:
        raise ConfigError(draft.problems)
    override(draft, {name: value for name, value in environ.items() if name == _STATE_DIRECTORY})
    try:
        return State.model_validate(draft.tables["state"]).directory
    except ValidationError as error:
        problems = from_pydantic(error, "state", TABLES, draft.name, draft.remedy)
        raise ConfigError(list(problems)) from None


def build(tables: Mapping[str, object]) -> Settings:
    """The settings from tables in memory, by the same rules; files of secrets are not read.

    Raises `ConfigError` with every problem that was found.
    """
    draft = Draft()
    _take_tables(draft, tables)
    return _settings(draft)


def _take_tables(draft: Draft, found: Mapping[str, object]) -> None:
    for name, table in found.items():
        if name == MANY:
            draft.crews = crews.drafts(table)
        elif name not in SECTIONS:
            draft.problems.append(
                Problem(quoted_key(name), "there is no such section", unknown_section(name, TABLES))
            )
        elif not isinstance(table, Mapping):
            draft.problems.append(
                Problem(name, "must be a table", f"write [{name}] on a line, and its keys below")
            )
        else:
            draft.tables[name] = dict(table)


def _settings(draft: Draft) -> Settings:
    sections: dict[str, Section] = {}
    faulty: set[str] = set()
    for name, model in SECTIONS.items():
        given = draft.tables.get(name)
        try:
            # Without a table all are defaults, which are not checked in either case. To construct
            # them does not make what a table is checked by (see `Section`).
            sections[name] = model.model_validate(given) if given else model.model_construct()
        except ValidationError as error:
            draft.problems += from_pydantic(error, name, TABLES, draft.name, draft.remedy)
            wrong = {fault["loc"][0] for fault in error.errors(include_input=False)}
            right = {key: value for key, value in (given or {}).items() if key not in wrong}
            sections[name] = model.model_validate(right)
            faulty.add(name)
    draft.problems += checks.conflicts(draft)
    entries = tuple(crews.checked(crew, TABLES) for crew in draft.crews)
    settings = Settings(**sections, crews=entries)  # type: ignore[arg-type]  # SECTIONS pairs them
    if draft.problems:
        of_crews = [problem for entry in entries for problem in entry.problems]
        rest = None if "state" in faulty else settings
        raise ConfigError(one_a_key([*draft.problems, *of_crews]), rest)
    return replace(settings, warnings=(*draft.warnings, *checks.warnings(settings)))
