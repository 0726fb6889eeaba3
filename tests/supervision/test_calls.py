"""The retry loop waits between attempts and passes other errors on; a call has a deadline."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from smartlinkd.errors import Invalid, Unavailable
from smartlinkd.supervision.calls import ACTOR_TIMEOUT_S, actor_deadline, retry_until_success


async def test_retry_until_success_waits_between_attempts_and_returns_the_result() -> None:
    attempts = 0
    waits: list[tuple[int, int]] = []

    async def attempt() -> str:
        nonlocal attempts
        attempts += 1
        if attempts < 3:
            raise Unavailable("the disk is full", retry_after=30)
        return "done"

    async def wait(refusal: Unavailable, number: int) -> None:
        waits.append((refusal.retry_after, number))

    assert await retry_until_success(attempt, wait) == "done"
    assert waits == [(30, 1), (30, 2)]


async def test_retry_until_success_passes_other_errors_on() -> None:
    async def attempt() -> None:
        raise Invalid("link: is empty")

    async def wait(_: Unavailable, __: int) -> None:
        pytest.fail("an error that no retry mends was waited for")

    with pytest.raises(Invalid):
        await retry_until_success(attempt, wait)


async def test_call_after_its_deadline_is_refused(autojump_clock: MockClock) -> None:
    with pytest.raises(Unavailable) as refused, actor_deadline():
        await trio.sleep_forever()
    assert (trio.current_time(), refused.value.retry_after) == (ACTOR_TIMEOUT_S, 5)
    with actor_deadline():
        await trio.sleep(ACTOR_TIMEOUT_S - 1)
