"""A process that has no descriptor left, for real; and one in which no thread can be started."""

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
    """In the block this process gets no new one."""
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
    """In the block this process gets no new descriptor."""
    return without_descriptors


@pytest.fixture
def no_thread(monkeypatch: pytest.MonkeyPatch) -> Shortage:
    """In the block Python says that there can be none, as `tests/test_threads.py` has it for real.
    Those of trio that are idle would else be taken."""

    async def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    @contextmanager
    def short() -> Iterator[None]:
        with monkeypatch.context() as patch:
            patch.setattr(trio.to_thread, "run_sync", refuse)
            yield

    return short
