"""Tests that docs, docstrings and tables name must exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.hygiene.nightly import KEPT, TESTS

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`(?:\w+/)*(test_[\w…]*(?:\.py)?)(?:\[[^`]*\])?`")
"""A test or its file between backticks. … stands for anything; brackets are ignored."""
DEFINED = re.compile(r"^ *(?:async )?def (test_\w+)", re.MULTILINE)


def texts() -> Iterator[tuple[Path, str]]:
    for pattern in ("tests/**/*.py", "docs/*.md", "README.md"):
        yield from ((path, path.read_text(encoding="utf-8")) for path in ROOT.glob(pattern))


def test_named_tests_exist() -> None:
    found = dict(texts())
    there = {path.name for path in found} | {
        name for text in found.values() for name in DEFINED.findall(text)
    }
    missing = [
        f"{path.relative_to(ROOT)}: {name}"
        for path, text in found.items()
        for name in set(NAMED.findall(text)) - there
        if not any(map(re.compile(re.escape(name).replace("…", ".*")).fullmatch, there))
    ]
    assert missing == []


def test_nightly_entries_exist() -> None:
    """An entry may be the beginning of a test's name."""
    missing = []
    for entry in KEPT:
        name, _, test = entry.partition("::")
        path = TESTS / name
        if not path.exists() or (test and f"def {test}" not in path.read_text(encoding="utf-8")):
            missing.append(entry)
    assert missing == []
