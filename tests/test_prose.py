"""Docstrings name their subject first, and the head of a module has at most eight lines."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("daemon/smartlinkd", "tests", "bench", "examples")
LONGEST_HEAD = 8
"""Lines."""
NO_SUBJECT = re.compile(r"(What|Whether|Who|One that|Those|It)\b")


def docstrings(tree: ast.Module) -> Iterator[str]:
    """Yield the docstrings of a module, its classes and its functions, and those of constants."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for each in node.body:
                if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant):
                    yield str(each.value.value)


def violations(tree: ast.Module) -> Iterator[str]:
    """Yield what is wrong with the docstrings of a module."""
    if len((ast.get_docstring(tree) or "").splitlines()) > LONGEST_HEAD:
        yield f"its head has more than {LONGEST_HEAD} lines"
    yield from (text for text in docstrings(tree) if NO_SUBJECT.match(text.strip()))


def test_docstrings_name_their_subject_and_heads_are_short() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {each}"
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
        for each in violations(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert found == []


def test_modules_that_the_architecture_names_exist() -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"[\w/]+\.(?:py|js)\b", text))
    there = [
        path.as_posix()
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".js")
    ]
    assert [name for name in sorted(named) if not any(f"/{name}" in path for path in there)] == []
