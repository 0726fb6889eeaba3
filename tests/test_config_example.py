"""`config.example.toml` says of every key what the code does."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from pydantic import ValidationError

from daemon.auth.passwords import hash_password
from daemon.config import load
from daemon.config.settings import MIB, SECTIONS, Section, Server

EXAMPLE = Path(__file__).parents[1] / "config.example.toml"
HASH = hash_password("correct horse")


@pytest.fixture(scope="module")
def with_defaults() -> dict[str, dict[str, object]]:
    """The example with every line that is a default put into force."""
    text = re.sub(r"^# ([a-z_]+ = )", r"\1", EXAMPLE.read_text(), flags=re.MULTILINE)
    return tomllib.loads(text)


def test_it_lists_every_section_and_key(with_defaults: dict[str, dict[str, object]]) -> None:
    listed = {name: list(table) for name, table in with_defaults.items()}
    assert listed == {name: list(model.model_fields) for name, model in SECTIONS.items()}


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
    assert load(path, {}).auth.password_hash.get_secret_value() == HASH


def test_the_longest_body_there_may_be_is_the_one_it_tells() -> None:
    assert Server(max_body=16 * MIB).max_body == 16 * MIB
    with pytest.raises(ValidationError, match="max_body"):
        Server(max_body=16 * MIB + 1)
    assert "(1 KiB to 16 MiB)" in EXAMPLE.read_text()
