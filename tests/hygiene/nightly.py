"""Tests that only `./run nightly` runs in full. A part of pytest.

`@pytest.mark.nightly` keeps a test out of each commit's run. `@pytest.mark.nightly(sample=N)` keeps
N cases of a parametrized test in it, spread evenly over all of them. The folders in `FOLDERS` are
nightly as a whole, but for tests with a sample. `--nightly` runs everything.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
FOLDERS = ("simulation", "soak")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Called by pytest."""
    parser.addoption("--nightly", action="store_true", help="run what only nightly runs do, too")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Called by pytest when all tests are known."""
    if config.getoption("--nightly"):
        return
    by_function: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if _is_nightly(item):
            by_function[item.nodeid.partition("[")[0]].append(item)
    left_out: set[pytest.Item] = set()
    for cases in by_function.values():
        left_out.update(set(cases) - set(_sample(cases)))
    config.hook.pytest_deselected(items=sorted(left_out, key=lambda item: item.nodeid))
    items[:] = [item for item in items if item not in left_out]


def _is_nightly(item: pytest.Item) -> bool:
    folder = item.path.relative_to(TESTS).parts[0] if item.path.is_relative_to(TESTS) else ""
    return folder in FOLDERS or item.get_closest_marker("nightly") is not None


def _sample(cases: list[pytest.Item]) -> list[pytest.Item]:
    mark = cases[0].get_closest_marker("nightly")
    size = int(mark.kwargs.get("sample", 0)) if mark is not None else 0
    if size == 0:
        return []
    cases = sorted(cases, key=lambda item: item.nodeid)
    return [cases[index * len(cases) // size] for index in range(min(size, len(cases)))]
