"""The store's actor: a cancelled call is applied wholly or not at all, and no file stays open."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio

from smartlinkd.errors import Unavailable
from smartlinkd.store.actor import Store
from smartlinkd.store.errors import UnusableStore
from smartlinkd.store.model import (
    Change,
    ExecutionUpdate,
    IdempotencyKey,
    NewExecution,
    Status,
    StoreLimits,
    WebhookTarget,
)
from smartlinkd.supervision.actor import ActorRestarting
from tests.every_step.strike import Strike
from tests.store.calls import new
from tests.supervision.conftest import note

TARGET = WebhookTarget("crew", "https://a.example")
KEY = IdempotencyKey("k", {})
STEPS = 100
"""More steps than any of these calls has. Each loop ends after the last step."""


@contextmanager
def cancelled_at(step: int) -> Iterator[trio.CancelScope]:
    """Cancel the block at its n-th step: 0 before the block, and never beyond its last step."""
    with trio.CancelScope() as scope:
        if step == 0:
            scope.cancel()
        strike = Strike(step)
        strike.arm(scope.cancel)
        trio.lowlevel.add_instrument(strike)
        try:
            yield scope
        finally:
            trio.lowlevel.remove_instrument(strike)


async def is_complete(journal: Store, given: NewExecution) -> bool:
    """Return True if the execution exists with its key and webhooks, False if nothing of it
    exists."""
    execution = await journal.execution(given.id)
    known = await journal.created_by(given.crew, given.owner, KEY, given.created_at)
    if execution is None:
        assert known is None
        return False
    assert known == given.id
    assert (execution.inputs, execution.webhooks) == (given.inputs, given.webhooks)
    return True


async def test_kickoff_cancelled_at_any_step_is_whole_or_absent(journal: Store) -> None:
    seen = set()
    for step in range(STEPS):
        given = new(crew=f"crew-{step}", webhooks=(TARGET,))
        with cancelled_at(step) as scope:
            await journal.create(given, idempotency=KEY)
        made = await is_complete(journal, given)
        seen.add((made, scope.cancelled_caught))
        if not scope.cancelled_caught:
            break

    assert {(False, True), (True, False)} <= seen


async def test_actor_cancelled_at_any_step_closes_its_file_and_keeps_answered_writes(
    handle: Store, path: Path
) -> None:
    for step in range(STEPS):
        given = new(crew=f"crew-{step}", webhooks=(TARGET,))
        caller = Caller(handle, given)
        async with trio.open_nursery() as callers:
            callers.start_soon(caller.ask)
            with cancelled_at(step) as scope:
                await serve_until(handle, caller.answered)
            handle.mailbox.close("it was cancelled")  # a caller that still waits gets an error
        assert open_files(path) == []
        async with trio.open_nursery() as nursery:
            await nursery.start(handle.run)
            assert await is_complete(handle, given) >= caller.was_promised
            nursery.cancel_scope.cancel()
        if not scope.cancelled_caught:
            assert caller.was_promised
            return
    pytest.fail("it never came to its end")


class Caller:
    """A caller that creates an execution and records the answer."""

    def __init__(self, journal: Store, given: NewExecution) -> None:
        self._journal = journal
        self._given = given
        self.answered = trio.Event()
        self.was_promised = False

    async def ask(self) -> None:
        with suppress(Unavailable):
            await self._journal.create(self._given, idempotency=KEY)
            self.was_promised = True
        self.answered.set()


async def serve_until(journal: Store, end: trio.Event) -> None:
    async with trio.open_nursery() as nursery:
        await nursery.start(journal.run)
        await end.wait()
        nursery.cancel_scope.cancel()


def open_files(path: Path) -> list[str]:
    """Return the store's files among this process's descriptors."""
    links = [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return [link for link in links if link.startswith(str(path))]


async def test_damaged_file_ends_the_actor_and_the_call_is_unavailable(
    handle: Store, path: Path
) -> None:
    given = new(webhooks=(TARGET,))
    answers: list[object] = []

    with pytest.RaisesGroup(pytest.RaisesExc(UnusableStore, match=f"{path} is damaged")):
        async with trio.open_nursery() as nursery:
            await nursery.start(handle.run)
            await handle.create(given, idempotency=None)
            with closing(sqlite3.connect(path)) as connection:
                connection.execute("UPDATE kickoffs SET inputs = '{'")
                connection.commit()
            await note(answers, handle.execution(given.id))

    assert [type(answer) for answer in answers] == [ActorRestarting]
    assert open_files(path) == []


@pytest.mark.parametrize("store_limits", [StoreLimits(prune_every_s=0.01)])
async def test_old_executions_are_pruned_periodically(
    journal: Store, wall: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    given = new()
    await journal.create(given, idempotency=None)
    end = Change(status=Status.STOPPED, finished_at=wall.now)
    await journal.record(given.id, ExecutionUpdate(end))
    wall.now += timedelta(days=31)

    with trio.fail_after(5):
        while "forgot 1 executions" not in caplog.text:  # noqa: ASYNC110 - no event is sent
            await trio.sleep(0.01)
    assert await journal.summary(given.id) is None


@pytest.mark.parametrize("store_limits", [StoreLimits(prune_every_s=0.01)])
async def test_pruning_that_fails_is_tried_again(
    handle: Store, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    again, send = trio.Event(), iter([False, True])

    async def fail(now: datetime) -> int:
        if next(send):
            again.set()
            await trio.sleep_forever()
        raise Unavailable("the disk is full", retry_after=1)

    handle.prune = fail  # type: ignore[method-assign]
    await nursery.start(handle.run)

    with trio.fail_after(5):
        await again.wait()
    assert "could not forget old executions: the disk is full" in caplog.text
