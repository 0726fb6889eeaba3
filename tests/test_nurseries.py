"""A hidden nursery: which error leaves the block, and that no task outlives the block."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from smartlinkd.nurseries import background


async def test_tasks_run_beside_the_block_and_end_with_it() -> None:
    seen = []

    async def task() -> None:
        seen.append("began")
        try:
            await trio.sleep_forever()
        finally:
            seen.append("ended")

    async with background(task):
        await trio.testing.wait_all_tasks_blocked()
        assert seen == ["began"]
    assert seen == ["began", "ended"]


async def test_an_error_of_the_block_leaves_bare_with_its_cause() -> None:
    cause = KeyError("cause")
    with pytest.raises(ValueError, match="mine") as raised:
        async with background(trio.sleep_forever):
            raise ValueError("mine") from cause
    assert raised.value.__cause__ is cause


async def test_an_error_of_a_task_cancels_the_block_and_leaves_bare() -> None:
    async def fail() -> None:
        raise ValueError("a task's")

    with pytest.raises(ValueError, match="a task's"):
        async with background(fail):
            await trio.sleep_forever()


async def test_error_of_the_block_is_raised_before_that_of_a_task() -> None:
    async def fail_when_cancelled() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("a task's")

    async def block() -> None:
        async with background(fail_when_cancelled):
            await trio.testing.wait_all_tasks_blocked()
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await block()


async def test_cancellation_from_outside_cancels_the_block(autojump_clock: MockClock) -> None:
    with trio.move_on_after(1) as scope:
        async with background(trio.sleep_forever):
            await trio.sleep_forever()
        raise AssertionError("the block was not cancelled")
    assert scope.cancelled_caught
