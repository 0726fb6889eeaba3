"""`config.example.toml` says of every key what the code does."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from annotated_types import Ge, Le

from smartlinkd.config import load
from smartlinkd.config.base import DAY, GIB, KIB, MIB, Section
from smartlinkd.config.crews import CrewSection
from smartlinkd.config.problems import heading
from smartlinkd.config.settings import SECTIONS, TABLES
from tests.config_file import HASH

EXAMPLE = Path(__file__).parents[2] / "config.example.toml"


def in_force() -> dict[str, Any]:
    """Return the example with every default and its crew put into force."""
    lines = r"^# (\[\[crews\]\]|[a-z_]+ = )"
    text = re.sub(lines, r"\1", EXAMPLE.read_text(), flags=re.MULTILINE)
    return tomllib.loads(text)


def test_example_has_every_section_and_key_with_its_default() -> None:
    found = in_force()
    del found["crews"]
    listed = {name: list(table) for name, table in found.items()}
    assert listed == {name: list(model.model_fields) for name, model in SECTIONS.items()}
    for name, model in SECTIONS.items():
        assert model.model_validate(found[name]) == model()


def test_crew_of_the_example_has_every_key_with_its_default() -> None:
    (crew,) = in_force()["crews"]
    assert list(crew) == list(CrewSection.model_fields)
    needed = {key: crew[key] for key in ("name", "runner", "command")}
    assert CrewSection.model_validate(crew) == CrewSection.model_validate(needed)


@pytest.mark.parametrize(
    ("section", "key", "low", "high", "told"),
    [
        ("server", "max_body", KIB, 16 * MIB, "(1 KiB to 16 MiB)"),
        ("server", "grace", 0, 300, "(0 to 300)"),
        ("browser", "start_timeout", 1, 300, "(1 to 300)"),
        ("browser", "job_timeout", 1, 600, "(1 to 600)"),
        ("browser", "queue", 1, 10000, "(1 to 10000)"),
        ("browser", "contexts", 1, 256, "(1 to 256)"),
        ("marketplace", "chunk", 1, 50, "(1 to 50;"),
        ("links", "remember", 0, 30 * DAY, "(up to 30 days)"),
        ("products", "remember", 0, DAY, "(up to a day)"),
        ("journal", "retention_days", 1, 3650, "(1 to 3650)"),
        ("journal", "retention_count", 1, 1000000, "(1 to 1000000)"),
        ("history", "retention_days", 0, 3650, "(0 to 3650;"),
        ("history", "retention_count", 1, 1000000, "(1 to 1000000)"),
        ("history", "max_bytes", MIB, 64 * GIB, "(1 MiB to 64 GiB)"),
        ("crews", "max_running", 1, 256, "(1 to 256)"),
        ("crews", "queue", 0, 10000, "(0 to 10000)"),
        ("crews", "deadline", 1, 604800, "(1 to 604800)"),
        ("crews", "human_deadline", 1, 2592000, "(1 to 2592000)"),
        ("crews", "memory", 16 * MIB, 256 * GIB, "(16 MiB to 256 GiB)"),
        ("crews", "grace", 1, 300, "(1 to 300)"),
    ],
)
def test_stated_bounds_of_a_number_are_the_codes(
    section: str, key: str, low: int, high: int, told: str
) -> None:
    metadata = TABLES[section].model_fields[key].metadata
    assert low == next(m.ge for m in metadata if isinstance(m, Ge))
    assert high == next(m.le for m in metadata if isinstance(m, Le))
    # What is told of a key stands between the one before it and itself.
    _, above = EXAMPLE.read_text().split(f"{heading(section)}\n", 1)
    above, _ = above.split(f"\n# {key} = ", 1)
    assert told in above.rpartition("\n\n")[2].replace("\n#", "")


@pytest.mark.parametrize(("name", "model"), [*SECTIONS.items(), ("crews", CrewSection)])
def test_each_number_has_both_bounds(name: str, model: type[Section]) -> None:
    for key, field in model.model_fields.items():
        if field.annotation in (int, float):
            assert {Ge, Le} <= {type(m) for m in field.metadata}, f"{name}.{key}"


def test_example_loads_once_it_has_a_password(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    filled = EXAMPLE.read_text().replace('# password_hash = ""', f'password_hash = "{HASH}"')
    path.write_text(filled)
    path.chmod(0o600)
    settings = load(path, {})
    assert settings.auth.password_hash.get_secret_value() == HASH
    assert settings.crews == ()
    assert settings.warnings == ()
