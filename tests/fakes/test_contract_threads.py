"""Contract of fake and real threads, as a task sees them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest
import trio

from tests.fakes.threads import run_in_place

HANG = 5.0  # seconds


class Threads(NamedTuple):
    """Functions that run something in a thread, and that call back from there."""

    run: Callable[..., Awaitable[Any]]
    call_back: Callable[[Callable[[], object]], object]


@pytest.fixture(params=["fake", "real"])
def threads(request: pytest.FixtureRequest) -> Threads:
    if request.param == "real":
        return Threads(trio.to_thread.run_sync, trio.from_thread.run_sync)
    return Threads(run_in_place, lambda function: function())


async def test_call_raises_error_of_its_function(threads: Threads) -> None:
    with pytest.raises(ZeroDivisionError):
        await threads.run(divmod, 7, 0)


async def test_call_cancelled_before_start_does_nothing(threads: Threads) -> None:
    done: list[int] = []
    with trio.CancelScope() as scope:
        scope.cancel()
        await threads.run(done.append, 1)
    assert scope.cancelled_caught
    assert done == []


async def test_call_cancelled_after_start_returns_its_value(threads: Threads) -> None:
    done: list[str] = []

    def work() -> str:
        threads.call_back(scope.cancel)
        done.append("work")
        return "value"

    with trio.CancelScope() as scope:
        done.append(await threads.run(work))
        await trio.lowlevel.checkpoint()
        done.append("not reached")
    assert done == ["work", "value"]


async def test_call_cancelled_while_waiting_for_limiter_does_nothing(
    threads: Threads, nursery: trio.Nursery
) -> None:
    limiter, done = trio.CapacityLimiter(1), list[int]()
    await limiter.acquire_on_behalf_of("somebody else")
    with trio.CancelScope() as scope:
        nursery.start_soon(_cancel_soon, scope)
        await threads.run(done.append, 1, limiter=limiter)
    assert scope.cancelled_caught
    assert done == []
    limiter.release_on_behalf_of("somebody else")
    await threads.run(done.append, 2, limiter=limiter)
    assert done == [2]


async def _cancel_soon(scope: trio.CancelScope) -> None:
    await trio.testing.wait_all_tasks_blocked()
    scope.cancel()


async def test_limiter_bounds_calls_while_other_tasks_run(threads: Threads) -> None:
    limiter, at_work, most = trio.CapacityLimiter(1), list[int](), list[int]()

    async def one(number: int) -> None:
        at_work.append(number)
        await threads.run(lambda: most.append(limiter.borrowed_tokens), limiter=limiter)

    with trio.fail_after(HANG):
        async with trio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(one, number)
            nursery.start_soon(threads.run, lambda: most.append(len(at_work)))
    assert sorted(most) == [1, 1, 1, 3]
    assert limiter.borrowed_tokens == 0
