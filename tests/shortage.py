"""Shortages: a process without a free descriptor, and one that cannot start a thread."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
import trio

Shortage = Callable[[], AbstractContextManager[None]]


@contextmanager
def without_descriptors() -> Iterator[None]:
    """Let this process get no new descriptor during the block."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def shortage() -> Shortage:
    """Return a context manager: the process gets no new descriptor during the block."""
    return without_descriptors


@pytest.fixture
def no_thread(monkeypatch: pytest.MonkeyPatch) -> Shortage:
    """Return a context manager: trio runs nothing in a thread during the block. The error is
    Python's own when it can start no thread (`tests/test_threads.py`)."""

    async def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    @contextmanager
    def short() -> Iterator[None]:
        with monkeypatch.context() as patch:
            patch.setattr(trio.to_thread, "run_sync", refuse)
            yield

    return short
