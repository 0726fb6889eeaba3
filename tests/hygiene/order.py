"""The files whose tests take long begin first. A part of pytest.

The workers of a run take file by file. One that takes a minute, and is begun when all others are
done, is waited for by everybody; begun first, it costs nothing. Which take long is known: their
tests say that they need more than others (`deadline.py`). All others stay in their random order.
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
