"""A process that has no descriptor left, for real."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

Shortage = Callable[[], AbstractContextManager[None]]


@pytest.fixture
def shortage() -> Shortage:
    """In the block this process gets no new descriptor."""

    @contextmanager
    def short() -> Iterator[None]:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        free = os.dup(0)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    return short
