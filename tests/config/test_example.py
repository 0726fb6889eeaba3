"""`config.example.toml` says of every key what the code does."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from annotated_types import Ge, Le
from pydantic import ValidationError

from daemon.auth.passwords import hash_password
from daemon.config import load
from daemon.config.crews import CrewSection
from daemon.config.section import MIB, Section
from daemon.config.settings import SECTIONS, Server

EXAMPLE = Path(__file__).parents[2] / "config.example.toml"
HASH = hash_password("correct horse")


def in_force(pattern: str) -> dict[str, Any]:
    """What the example says once the lines that begin like this are no comments any more."""
    text = re.sub(rf"^# ({pattern})", r"\1", EXAMPLE.read_text(), flags=re.MULTILINE)
    return tomllib.loads(text)


@pytest.fixture(scope="module")
def with_defaults() -> dict[str, dict[str, object]]:
    """The example with every line that is a default put into force."""
    found = in_force(r"\[\[crews\]\]|[a-z_]+ = ")
    del found["crews"]
    return found


@pytest.fixture(scope="module")
def crew() -> dict[str, object]:
    """The crew in the example, with all of its keys."""
    (found,) = in_force(r"\[\[crews\]\]|[a-z_]+ = ")["crews"]
    assert isinstance(found, dict)
    return found


def test_it_lists_every_section_and_key(with_defaults: dict[str, dict[str, object]]) -> None:
    listed = {name: list(table) for name, table in with_defaults.items()}
    assert listed == {name: list(model.model_fields) for name, model in SECTIONS.items()}


def test_it_lists_every_key_of_a_crew(crew: dict[str, object]) -> None:
    assert list(crew) == list(CrewSection.model_fields)


def test_its_defaults_of_a_crew_are_the_codes(crew: dict[str, object]) -> None:
    needed = {key: crew[key] for key in ("name", "runner", "command")}
    assert CrewSection.model_validate(crew) == CrewSection.model_validate(needed)


@pytest.mark.parametrize(
    ("key", "bounds"),
    [
        ("max_running", "(1 to 256)"),
        ("queue", "(0 to 10000)"),
        ("deadline", "(1 to 604800)"),
        ("human_deadline", "(1 to 2592000)"),
        ("grace", "(1 to 300)"),
    ],
)
def test_the_bounds_of_a_crews_numbers_are_those_it_tells(key: str, bounds: str) -> None:
    metadata = CrewSection.model_fields[key].metadata
    low = next(m.ge for m in metadata if isinstance(m, Ge))
    high = next(m.le for m in metadata if isinstance(m, Le))
    assert bounds == f"({low} to {high})"
    assert bounds in EXAMPLE.read_text()


@pytest.mark.parametrize(("name", "model"), [*SECTIONS.items(), ("crews", CrewSection)])
def test_every_number_has_both_bounds(name: str, model: type[Section]) -> None:
    for key, field in model.model_fields.items():
        if field.annotation in (int, float):
            assert {Ge, Le} <= {type(m) for m in field.metadata}, f"{name}.{key}"


@pytest.mark.parametrize(("name", "model"), SECTIONS.items())
def test_its_defaults_are_the_codes(
    with_defaults: dict[str, dict[str, object]], name: str, model: type[Section]
) -> None:
    assert model.model_validate(with_defaults[name]) == model()


def test_it_loads_once_it_has_a_password(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    filled = EXAMPLE.read_text().replace('# password_hash = ""', f'password_hash = "{HASH}"')
    path.write_text(filled)
    path.chmod(0o600)
    settings = load(path, {})
    assert settings.auth.password_hash.get_secret_value() == HASH
    assert settings.crews == ()


def test_the_longest_body_there_may_be_is_the_one_it_tells() -> None:
    assert Server(max_body=16 * MIB).max_body == 16 * MIB
    with pytest.raises(ValidationError, match="max_body"):
        Server(max_body=16 * MIB + 1)
    assert "(1 KiB to 16 MiB)" in EXAMPLE.read_text()
