"""What is recorded last: it has its time when all is left off, and nothing of it stays."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.crews.workplace import LAST_ENTRY, LastEntries


async def refuse() -> None:
    raise RuntimeError("a fault of ours")


async def test_what_has_been_recorded_is_not_kept(nursery: trio.Nursery) -> None:
    """There is one for each execution, over months."""
    entries = LastEntries(nursery)
    recorded: list[str] = []

    async def record(what: str) -> None:
        await trio.lowlevel.checkpoint()
        recorded.append(what)

    entries.start_soon(record, "an end")
    assert len(entries._scopes) == 1
    await wait_all_tasks_blocked()
    assert recorded == ["an end"]
    assert entries._scopes == set()


async def test_nor_is_what_could_not_be_recorded(autojump_clock: MockClock) -> None:
    with pytest.RaisesGroup(RuntimeError):
        async with trio.open_nursery() as running:
            failing = LastEntries(running)
            failing.start_soon(refuse)
    assert failing._scopes == set()

    async with trio.open_nursery() as running:
        held_up = LastEntries(running)
        held_up.start_soon(trio.sleep_forever)
        held_up.leave_off()
    assert trio.current_time() == LAST_ENTRY
    assert held_up._scopes == set()
