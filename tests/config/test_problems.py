"""Problems in words that an operator can read, and can copy."""

from __future__ import annotations

import tomllib

import pytest

from smartlinkd.config import ConfigError, Problem, build
from smartlinkd.config.problems import format_toml
from tests.config_file import HASH


def problems(**tables: object) -> dict[str, str]:
    """Return fault and remedy by key of a configuration that has a password."""
    with pytest.raises(ConfigError) as raised:
        build({"auth": {"password_hash": HASH}} | tables)
    return {p.key: f"{p.fault}; {p.remedy}" for p in raised.value.problems}


def test_problem_is_one_line_for_any_file_name() -> None:
    assert str(Problem("/a\nb", "is \x1b[2J", "mend it")) == r"/a\nb: is \x1b[2J; mend it"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a b", '"a b"'),
        ("a\nb", r'"a\nb"'),
        ("a\x9bb", r'"a\u009bb"'),
        (60 * "a", 60 * "a"),
        (61 * "a", f"{60 * 'a'}…"),
        (f"a {60 * 'a'}", f'"a {58 * "a"}\\u2026"'),
    ],
)
def test_unknown_key_is_shown_readably(name: str, shown: str) -> None:
    found = problems(**{name: 3}, server={name: 3}, third_party={"fields": {name: "x"}})
    assert set(found) == {shown, f"server.{shown}", f"third_party.fields.{shown}"}


def test_unknown_key_is_reported_with_the_known_ones() -> None:
    assert problems(logging={"xyzzy": 3})["logging.xyzzy"].endswith("; [logging] takes level")
    (crew,) = build({"auth": {"password_hash": HASH}, "crews": [{"xyzzy": 3}]}).crews
    (unknown,) = (each for each in crew.problems if each.key == "crews[0].xyzzy")
    assert unknown.remedy.startswith("[[crews]] takes name, runner, command, ")
    assert "; the sections are server, state, " in problems(xyzzy={})["xyzzy"]


@pytest.mark.parametrize(
    ("section", "key", "entry"),
    [
        ("server", "trusted_proxies", "192.0.2.7"),
        ("cookie", "extension_origins", f"chrome-extension://{32 * 'a'}"),
        ("notify", "command", "/bin/true"),
    ],
)
def test_list_may_have_64_entries(section: str, key: str, entry: str) -> None:
    auth = {"password_hash": HASH}
    settings = build({"auth": auth, section: {key: 64 * [entry]}})
    assert len(getattr(getattr(settings, section), key)) == 64
    found = problems(**{section: {key: 65 * [entry]}})
    assert "must have at most 64 entries" in found[f"{section}.{key}"]


@pytest.mark.parametrize(
    ("section", "key", "value", "fault"),
    [
        ("third_party", "fields", 3, "must be a table"),
        ("third_party", "fields", {"name": 3}, "must be text in quotes"),
        ("browser", "queue", float("inf"), "must be a whole number"),
        ("browser", "queue", True, "must be a whole number"),
        ("browser", "queue", 10**30, "must be from 1 to 10000 jobs"),
        ("browser", "idle", float("inf"), "must be from 1 to 86400 seconds"),
        ("browser", "idle", "60", "must be a number"),
        ("logging", "level", 3, "must be one of"),
        ("notify", "command", ["tell"], "must begin with the program's absolute path; for example"),
        ("notify", "command", ["/bin/tell", "a\0b"], "must not hold a NUL"),
        ("notify", "command", "/bin/tell", "must be a list"),
    ],
)
def test_wrong_value_is_refused_with_its_rule(
    section: str, key: str, value: object, fault: str
) -> None:
    ((name, told),) = problems(**{section: {key: value}}).items()
    assert name.startswith(f"{section}.{key}")
    assert told.startswith(fault)


@pytest.mark.parametrize(
    "value", ["giá", 3, 1.5, True, [], ["a", "b"], {"a": 1, "b": "c"}, [{"a": [True]}]]
)
def test_format_toml_is_read_back(value: object) -> None:
    assert tomllib.loads(f"x = {format_toml(value)}") == {"x": value}
