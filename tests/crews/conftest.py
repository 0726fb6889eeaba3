"""Workers to run, and what must not be left of them; the tokens of some crews."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
import trio
from pydantic import SecretBytes

from smartlinkd.crews.protocol import MAX_OUTPUT, Inputs
from smartlinkd.crews.tokens import CrewTokens
from smartlinkd.crews.worker import Worker, WorkerSettings, start_worker
from tests.crews.scripts import Begin
from tests.hygiene.at_once import nothing_left, until

__all__ = ["nothing_left", "until"]  # fixtures
MIB = 2**20


@pytest.fixture
def runs() -> Iterator[Path]:
    """The folder in which workers have theirs. The test must leave none in it."""
    with tempfile.TemporaryDirectory(prefix="smartlinkd-test-") as folder:
        yield Path(folder)
        assert list(Path(folder).iterdir()) == []


@pytest.fixture
def begin(runs: Path) -> Begin:
    """`async with begin("/bin/program", "argument") as worker`, for the execution "some-id"."""

    def start(
        *command: str,
        inputs: Inputs | None = None,
        environment: dict[str, str] | None = None,
        memory: int = 256 * MIB,
        grace: float = 5.0,
        max_output: int = MAX_OUTPUT,
    ) -> AbstractAsyncContextManager[Worker]:
        settings = WorkerSettings(
            command=command,
            environment=environment or {},
            memory=memory,
            grace=grace,
            max_output=max_output,
        )
        return start_worker(settings, "some-id", inputs or Inputs(inputs={}), runs=runs)

    return start


Running = Callable[..., AbstractAsyncContextManager[CrewTokens]]


@pytest.fixture
def running_tokens(tmp_path: Path) -> Running:
    """One instance of the crew tokens while the body runs, on the same folder each time."""

    @asynccontextmanager
    async def instance(
        users: Mapping[str, tuple[str, ...]], *, master: bytes = bytes(range(32))
    ) -> AsyncIterator[CrewTokens]:
        tokens = CrewTokens(tmp_path, SecretBytes(master), users)
        async with trio.open_nursery() as nursery:
            await nursery.start(tokens.run)
            yield tokens
            nursery.cancel_scope.cancel()

    return instance
