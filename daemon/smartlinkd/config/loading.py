"""Loading: from a file and the environment to `Settings`, or to all problems at once.

Nothing stops at the first fault: each step adds its problems, and hands on what it understood. Only
a file that cannot be read ends it early, since every required key would be "missing". A crew's
problems stay with that crew, and are raised only together with others. See
docs/decisions/048-no-pydantic-settings.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from smartlinkd.config import checks, secret_files
from smartlinkd.config.base import Section
from smartlinkd.config.crews import check_crew, draft_crews
from smartlinkd.config.problems import (
    MANY,
    Problem,
    first_of_each_key,
    from_pydantic,
    unknown_section,
)
from smartlinkd.config.settings import SECTIONS, TABLES, Settings, StateSection
from smartlinkd.config.sources import Draft, override, read_tables, variable_for
from smartlinkd.processes.process_limits import memory_limit


class ConfigError(Exception):
    """The configuration cannot be used.

    Attributes:
        problems: all problems. The error's text has a line for each.
        rest: the settings without the wrong keys, for further checks. None if nothing could be
            read, or the state directory is unknown.
    """

    def __init__(self, problems: Sequence[Problem], rest: Settings | None = None) -> None:
        self.problems = tuple(problems)
        self.rest = rest
        super().__init__("\n".join(map(str, self.problems)))


def load(path: Path | str, environ: Mapping[str, str], *, by_hand: bool = False) -> Settings:
    """Return the settings in a TOML file, with the variables of `environ` over it.

    Args:
        by_hand: True for commands that check a service's configuration. Without credentials of
            their own they use those that the service would be given, but encrypted ones.

    Raises:
        ConfigError: with every problem that was found.
    """
    draft = Draft()
    found = read_tables(draft, Path(path))
    if found is not None:
        _add_tables(draft, found)
    override(draft, environ)
    if found is None:
        raise ConfigError(first_of_each_key(draft.problems))
    credentials = secret_files.of_service(environ)
    if by_hand and not credentials:
        credentials = secret_files.beside(Path(path))
    reader = secret_files.SecretReader(draft, credentials)
    reader.read_secrets()
    reader.read_environments()
    settings = _check(draft)
    unmet = checks.out_of_reach(settings, memory_limit())
    return replace(settings, warnings=(*settings.warnings, *unmet))


def state_directory(path: Path | str, environ: Mapping[str, str]) -> Path:
    """Return the state directory, and read nothing else.

    The owner's shell can reach the running daemon by it without reading secrets, and while other
    sections of the file have faults.

    Raises:
        ConfigError: with the problems of the file or of this section.
    """
    draft = Draft()
    found = read_tables(draft, Path(path))
    if found is not None:
        _add_tables(draft, {"state": found.get("state", {})})
    if draft.problems:
        raise ConfigError(draft.problems)
    variable = variable_for("state", "directory")
    override(draft, {name: value for name, value in environ.items() if name == variable})
    try:
        return StateSection.model_validate(draft.tables["state"]).directory
    except ValidationError as error:
        problems = from_pydantic(error, "state", TABLES, draft.name, draft.remedy)
        raise ConfigError(list(problems)) from None


def build(tables: Mapping[str, object]) -> Settings:
    """Return the settings in tables in memory. Files of secrets are not read.

    Raises:
        ConfigError: with every problem that was found.
    """
    draft = Draft()
    _add_tables(draft, tables)
    return _check(draft)


def _add_tables(draft: Draft, found: Mapping[str, object]) -> None:
    for name, table in found.items():
        if name == MANY:
            draft.crews = draft_crews(table)
        elif name not in SECTIONS:
            draft.problems.append(unknown_section(name, TABLES))
        elif not isinstance(table, Mapping):
            draft.problems.append(
                Problem(name, "must be a table", f"write [{name}] on a line, and its keys below")
            )
        else:
            draft.tables[name] = dict(table)


def _check(draft: Draft) -> Settings:
    sections: dict[str, Section] = {}
    faulty: set[str] = set()
    for name, model in SECTIONS.items():
        given = draft.tables.get(name, {})
        try:
            # Defaults need no check. To construct them does not build the table's validator.
            sections[name] = model.model_validate(given) if given else model.model_construct()
        except ValidationError as error:
            draft.problems += from_pydantic(error, name, TABLES, draft.name, draft.remedy)
            wrong = {fault["loc"][0] for fault in error.errors(include_input=False)}
            right = {key: value for key, value in given.items() if key not in wrong}
            sections[name] = model.model_validate(right)
            faulty.add(name)
    draft.problems += checks.conflicts(draft)
    crews = tuple(check_crew(crew, TABLES) for crew in draft.crews)
    encrypted = tuple(draft.encrypted)
    settings = Settings(**sections, crews=crews, encrypted=encrypted)  # type: ignore[arg-type]  # see SECTIONS
    if draft.problems:
        of_crews = [problem for crew in crews for problem in crew.problems]
        rest = None if "state" in faulty else settings
        raise ConfigError(first_of_each_key([*draft.problems, *of_crews]), rest)
    return replace(settings, warnings=(*draft.warnings, *checks.warnings(settings)))
