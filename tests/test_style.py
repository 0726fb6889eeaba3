"""Tests use public names, and patch no constant and no dotted string (docs/style.md).

Async fixtures are arguments, because pytest-trio does not run others.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

TESTS = Path(__file__).parent

WITHOUT_PUBLIC_NAME = {"hygiene/scheduling.py": "trio has no public way to seed its order of tasks"}
"""Files that may use a private name, with the reason."""
DOCUMENTED = {"_current_frames"}
"""Public names that begin with an underscore; Python's manual documents them."""


def violations(tree: ast.Module) -> Iterator[str]:
    """Yield each offence of a test file with its line."""
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(names=names):
                for each in names:
                    if _is_private(each.name):
                        yield f"{node.lineno}: imports {each.name}"
            case ast.Attribute(value=owner, attr=name) if _is_private(name):
                if not (isinstance(owner, ast.Name) and owner.id in ("self", "cls")):
                    yield f"{node.lineno}: uses {ast.unparse(node)}"
            case ast.Call(func=ast.Attribute(attr="setattr"), args=[first, *rest]):
                if isinstance(first, ast.Constant):
                    yield f"{node.lineno}: patches the string {first.value!r}"
                elif rest and isinstance(rest[0], ast.Constant):
                    name = str(rest[0].value)
                    if name.isupper() or _is_private(name):
                        yield f"{node.lineno}: patches {name}"


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in DOCUMENTED


@pytest.fixture(scope="module")
def trees() -> dict[str, ast.Module]:
    """Every file of the tests, by its path below `tests/`."""
    return {
        path.relative_to(TESTS).as_posix(): ast.parse(path.read_text("utf-8"))
        for path in TESTS.rglob("*.py")
    }


def test_tests_use_public_names_and_patch_no_constant(trees: Mapping[str, ast.Module]) -> None:
    found = {name: list(violations(tree)) for name, tree in trees.items()}
    excused = {name for name in WITHOUT_PUBLIC_NAME if found.pop(name)}
    assert excused == set(WITHOUT_PUBLIC_NAME)
    assert {name: each for name, each in found.items() if each} == {}


def fixtures_that_never_run(trees: Mapping[str, ast.Module]) -> Iterator[str]:
    """Yield the async fixtures with `autouse`, or named by `usefixtures`."""
    made, named = set(), {}
    for path, tree in trees.items():
        for node in ast.walk(tree):
            match node:
                case ast.AsyncFunctionDef(name=name, decorator_list=decorators):
                    said = " ".join(map(ast.unparse, decorators))
                    if "pytest.fixture" in said:
                        made.add(name)
                        if "autouse" in said:
                            yield f"{path}:{node.lineno}: {name}"
                case ast.Call(func=ast.Attribute(attr="usefixtures"), args=names):
                    used = [str(each.value) for each in names if isinstance(each, ast.Constant)]
                    named.update({f"{path}:{node.lineno}: {name}": name for name in used})
    yield from (where for where, name in named.items() if name in made)


def test_async_fixtures_are_arguments(trees: Mapping[str, ast.Module]) -> None:
    assert list(fixtures_that_never_run(trees)) == []
