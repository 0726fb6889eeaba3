"""Docstrings name their subject first, and the head of a module has at most eight lines."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("daemon/smartlinkd", "tests", "bench", "examples")
LONGEST_HEAD = 8
"""Lines."""
NO_SUBJECT = re.compile(r"(What|Whether|Who|One that|Those|It)\b")


def modules() -> list[str]:
    """Return the paths of all modules below `ROOT`."""
    return [
        path.relative_to(ROOT).as_posix()
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
    ]


def docstrings(tree: ast.Module) -> Iterator[str]:
    """Yield the docstrings of a module, its classes and its functions, and those of constants."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for each in node.body:
                if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant):
                    yield str(each.value.value)


@pytest.mark.parametrize("path", modules())
def test_docstrings_have_subjects_and_modules_short_heads(path: str) -> None:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    head = ast.get_docstring(tree) or ""
    assert len(head.splitlines()) <= LONGEST_HEAD
    assert [text for text in docstrings(tree) if NO_SUBJECT.match(text.strip())] == []


def test_modules_that_the_architecture_names_exist() -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"[\w/]+\.(?:py|js)\b", text))
    there = [path.as_posix() for path in ROOT.rglob("*") if path.suffix in (".py", ".js")]
    assert [name for name in sorted(named) if not any(f"/{name}" in path for path in there)] == []
