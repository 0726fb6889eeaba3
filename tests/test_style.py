"""Tests use public names, and patch no constant and no dotted string (docs/style.md).

Nor do they ask for an async fixture in a way in which pytest-trio does not run it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

TESTS = Path(__file__).parent

TO_BE_REWRITTEN: frozenset[str] = frozenset(
    {
        *("every_step/driver.py", "every_step/test_browser.py", "every_step/test_login.py"),
        *("fakes/conftest.py", "fakes/disk.py", "fakes/machine.py"),
        *("fakes/pages.py", "fakes/test_contract.py"),
        *("hygiene/deadline.py", "hygiene/look.py"),
        *("simulation/machine.py", "simulation/receivers.py", "simulation/seeded.py"),
        "simulation/world.py",
    }
)
"""Files that still do: stand-ins for the machine, and the order of trio's tasks, which has no
public seam. None may be added."""


def offences(tree: ast.Module) -> Iterator[str]:
    """Yield what a test file does that it should not, with its line."""
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
    return name.startswith("_") and not name.startswith("__")


def test_tests_use_public_names_and_patch_no_constant() -> None:
    found = {
        path.relative_to(TESTS).as_posix(): list(offences(ast.parse(path.read_text("utf-8"))))
        for path in TESTS.rglob("*.py")
    }
    offending = {name for name, each in found.items() if each}
    assert {name: found[name] for name in offending - TO_BE_REWRITTEN} == {}
    assert offending >= TO_BE_REWRITTEN  # a file that was rewritten leaves the list


def fixtures_that_never_run(trees: Mapping[str, ast.Module]) -> Iterator[str]:
    """Yield the async fixtures that are no argument: `autouse`, or named by `usefixtures`."""
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


def test_async_fixtures_are_arguments() -> None:
    trees = {str(path): ast.parse(path.read_text("utf-8")) for path in TESTS.rglob("*.py")}
    assert list(fixtures_that_never_run(trees)) == []
