"""Docstrings say what they are about: a real subject first, and a head of at most eight lines."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "daemon/smartlinkd"
LONGEST_HEAD = 8
NO_SUBJECT = re.compile(r"(What|Whether|Who|One that|Those|It)\b")


def modules() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def docstrings(tree: ast.Module) -> Iterator[str]:
    """Yield the docstrings of a module, its classes and its functions, and those of constants."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for each in node.body:
                if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant):
                    yield str(each.value.value)


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_docstrings_have_subjects_and_modules_short_heads(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    head = ast.get_docstring(tree) or ""
    assert len(head.splitlines()) <= LONGEST_HEAD
    assert [text for text in docstrings(tree) if NO_SUBJECT.match(text.strip())] == []


def test_modules_that_the_architecture_names_exist() -> None:
    text = (ROOT.parents[1] / "docs/architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"[\w/]+\.(?:py|js)\b", text))
    there = [
        path.as_posix() for path in ROOT.parents[1].rglob("*") if path.suffix in (".py", ".js")
    ]
    assert [name for name in sorted(named) if not any(f"/{name}" in path for path in there)] == []
