"""A pytest plugin: files with long tests run first, so that no worker is left with one at the end.

A test is long if it has a longer deadline (`deadline.py`). All other files keep their random
order.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from tests.hygiene.deadline import limit


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    longest: dict[Path, float] = defaultdict(float)
    for item in items:
        longest[item.path] = max(longest[item.path], limit(item))
    items.sort(key=lambda item: longest[item.path], reverse=True)
