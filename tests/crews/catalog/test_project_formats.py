"""The text formats of CrewAI projects: what they say, and what is refused."""

from __future__ import annotations

import pytest

from smartlinkd.crews.catalog.project_formats import MAX_NODES, NotReadable, parse_jsonc, parse_yaml


def test_yaml_is_read_as_tables_and_text() -> None:
    found = parse_yaml(
        "a:\n  role: >\n    one\n    two\n  n: !!int 1\n  yes: no\n  list: [x, 2020-01-01]\n"
    )
    assert found == {"a": {"role": "one two\n", "n": "1", "yes": "no", "list": ["x", "2020-01-01"]}}


def test_yaml_merge_keys_are_applied() -> None:
    assert parse_yaml("a: &a {x: 1, y: 2}\nb:\n  <<: *a\n  y: 3") == {
        "a": {"x": "1", "y": "2"},
        "b": {"x": "1", "y": "3"},
    }


def test_empty_yaml_is_none() -> None:
    assert parse_yaml("# all of it is commented out\n") is None


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("a: b\nc: [", "is not YAML in line 2"),
        ("a: *b", "undefined alias"),
        ("a: &a [*a]", "values"),
        ("!!python/object/apply:os.system ['true']", "constructor"),
        ("a: !!timestamp {!!value x: hunter2}", "does not fit the tag"),
        ('a: "\\UFFFFFFFF"', "an escape in it is no character"),
        ("a: b\n---\nc: d", "another document"),
        ("%TAG ! hunter2\n---\na: !x 1", "it has %TAG directives"),
        ("\0", "is not YAML"),
        (5000 * "[", "nested too deeply"),
        ((MAX_NODES + 1) * "- a\n", "more than 50000 values"),
    ],
)
def test_malformed_yaml_is_refused_with_its_fault(text: str, fault: str) -> None:
    with pytest.raises(NotReadable) as refused:
        parse_yaml(text)
    assert fault in str(refused.value)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("use", ["[{}]", "{{<<: [{}]}}"])
def test_yaml_bomb_of_aliases_is_refused(use: str) -> None:
    """Ten to the power of nine, by lists of lists or by merging merged tables."""
    lines = ["a0: &a0 {x: y}"]
    for level in range(1, 10):
        inner = ", ".join(10 * [f"*a{level - 1}"])
        lines.append(f"a{level}: &a{level} {use.format(inner)}")
    with pytest.raises(NotReadable, match="aliases"):
        parse_yaml("\n".join(lines))


def test_jsonc_may_have_comments_and_trailing_commas() -> None:
    text = """{ // why
        "a": "// no /* comment */ , }", /* over
        lines */ "b": [1, {"c": "\\\\",}, ], // ,
    }"""
    assert parse_jsonc(text) == {"a": "// no /* comment */ , }", "b": [1, {"c": "\\"}]}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"a" 1}', "is not JSON in line 1"),
        ('{"a": 1, // b\n/* c\n */ d}', "is not JSON in line 3"),
        ('{"a": 1} /* open', "is not JSON"),
        ('{"a": "open', "is not JSON"),
        ("", "is not JSON"),
        ('"' + 100_000 * '\\"', "is not JSON"),
        (60_000 * "/*a", "is not JSON"),
        (100_000 * "[", "nested too deeply"),
        (5000 * "1", "no number"),
    ],
)
def test_malformed_jsonc_is_refused_with_its_fault(text: str, fault: str) -> None:
    with pytest.raises(NotReadable) as refused:
        parse_jsonc(text)
    assert fault in str(refused.value)
