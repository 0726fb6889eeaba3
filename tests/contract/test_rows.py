"""The contract's promises, and the tests of each (`rows/*.toml`).

A row has the promise in one or two sentences, and its tests as `file::function`. These tests fail
for a row without a test, and for a test without a row.
"""

from __future__ import annotations

import ast
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parent


@cache
def rows() -> dict[str, dict[str, Any]]:
    """Return all rows by `file.row`."""
    return {
        f"{file.stem}.{row}": entry
        for file in sorted((FOLDER / "rows").glob("*.toml"))
        for row, entry in tomllib.loads(file.read_text(encoding="utf-8")).items()
    }


@cache
def functions() -> set[str]:
    """Return the tests of this folder as `file::function`, without those of this file."""
    return {
        f"{file.name}::{node.name}"
        for file in FOLDER.glob("test_*.py")
        if file != Path(__file__)
        for node in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    }


@pytest.mark.parametrize("row", rows())
def test_row_has_promise_and_tests_that_are_there(row: str) -> None:
    entry = rows()[row]
    assert entry.keys() == {"promise", "tests"}
    assert len(entry["promise"]) > 20
    assert entry["tests"], f"no test holds {row} to its promise"
    assert set(entry["tests"]) <= functions()


def test_test_belongs_to_a_row() -> None:
    named = Counter(name for entry in rows().values() for name in entry["tests"])
    assert sorted(functions() - named.keys()) == []
