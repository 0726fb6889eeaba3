"""Limits on guessing passwords and codes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from math import inf

import pytest
import trio

from smartlinkd.auth.throttle import MAX_NETWORKS, Throttle, network_of
from smartlinkd.errors import TooManyTries, WrongCredential

HERE, THERE = "192.0.2.1", "192.0.2.2"


class Guesses:
    """Attempts at a throttle, whose clock is set by hand."""

    def __init__(self, max_networks: int = MAX_NETWORKS) -> None:
        self.now = 0.0
        self.throttle = Throttle(lambda: self.now, max_networks=max_networks)

    async def fail(self, address: str = HERE, *, times: int = 1, code: bool = False) -> None:
        for _ in range(times):
            with pytest.raises(WrongCredential, match="that one"):
                async with self.throttle.attempt(address, code=code):
                    raise WrongCredential("that one")

    async def fail_codes(self, times: int) -> None:
        """Each from an address of its own, so that only the limit over all is spent."""
        for n in range(times):
            await self.fail(f"203.0.113.{n}", code=True)

    async def succeed(self, address: str = HERE) -> None:
        async with self.throttle.attempt(address) as tries:
            tries.succeeded()

    async def leave(self, address: str = HERE) -> None:
        """Neither right nor wrong: half a login, or an asker that went away."""
        with suppress(RuntimeError):
            async with self.throttle.attempt(address):
                raise RuntimeError

    async def wait(self, address: str = HERE, *, code: bool = False) -> float:
        """Seconds until the next try, 0 when it may be made now; inf until verdicts are here."""
        with trio.move_on_after(0):
            try:
                async with self.throttle.attempt(address, code=code):
                    return 0
            except TooManyTries as refused:
                return refused.retry_after
        return inf

    @asynccontextmanager
    async def under_way(self, address: str = HERE, *, tries: int = 1) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for _ in range(tries):
                await stack.enter_async_context(self.throttle.attempt(address))
            yield


@pytest.fixture
def guesses() -> Guesses:
    return Guesses()


async def test_wait_doubles_up_to_a_minute(guesses: Guesses) -> None:
    await guesses.fail(times=10)
    waits = []
    for _ in range(8):
        waits.append(await guesses.wait())
        guesses.now += waits[-1]
        await guesses.fail()
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]


async def test_wait_passes_in_whole_seconds_rounded_up(guesses: Guesses) -> None:
    await guesses.fail(times=10)
    guesses.now += 1
    await guesses.fail()
    assert await guesses.wait() == 2
    guesses.now += 0.5
    assert await guesses.wait() == 2  # whole seconds, rounded up
    guesses.now += 0.5
    assert await guesses.wait() == 1
    guesses.now += 1
    assert await guesses.wait() == 0


async def test_wait_begins_with_the_verdict(guesses: Guesses) -> None:
    await guesses.fail(times=9)
    slow = guesses.throttle.attempt(HERE)
    await slow.__aenter__()
    guesses.now += 10
    await slow.__aexit__(WrongCredential, WrongCredential(), None)
    assert await guesses.wait() == 1


async def test_thousands_of_failures_do_not_overflow(guesses: Guesses) -> None:
    await guesses.fail(times=10)
    for _ in range(2000):
        guesses.now += 60
        await guesses.fail()
    assert await guesses.wait() == 60


async def test_success_resets_its_address(guesses: Guesses) -> None:
    await guesses.fail(times=10)
    guesses.now += 1
    await guesses.succeed()
    await guesses.fail(times=9)
    assert await guesses.wait() == 0


async def test_attempt_without_a_verdict_changes_nothing(guesses: Guesses) -> None:
    await guesses.fail(times=9)
    for _ in range(20):
        await guesses.leave()
    assert await guesses.wait() == 0
    await guesses.fail()
    assert await guesses.wait() == 1
    guesses.now += 1
    await guesses.leave()
    await guesses.fail()
    assert await guesses.wait() == 2


async def test_pending_attempts_count_as_failures(guesses: Guesses) -> None:
    await guesses.fail(times=4)
    async with guesses.under_way(tries=5):
        assert await guesses.wait() == 0
        async with guesses.under_way():
            assert await guesses.wait() == inf
            assert await guesses.wait(THERE) == 0
    assert await guesses.wait() == 0


async def test_code_does_not_wait_for_pending_passwords(guesses: Guesses) -> None:
    async with guesses.under_way(tries=10):
        assert await guesses.wait() == inf
        assert await guesses.wait(code=True) == 0
    await guesses.fail(times=10)
    assert await guesses.wait(code=True) == 1


async def test_one_attempt_at_a_time_is_pending_after_ten_failures(guesses: Guesses) -> None:
    await guesses.fail(times=10)
    guesses.now += 1
    async with guesses.under_way():
        assert await guesses.wait() == inf
    assert await guesses.wait() == 0


async def test_wrong_codes_beyond_20_are_one_a_minute(guesses: Guesses) -> None:
    await guesses.fail_codes(19)
    assert await guesses.wait(code=True) == 0
    await guesses.fail_codes(1)
    assert await guesses.wait(code=True) == 60
    for _ in range(70):  # longer than the hour
        guesses.now += 59
        assert await guesses.wait(code=True) == 1
        guesses.now += 1
        await guesses.fail(code=True)
        assert await guesses.wait(code=True) == 60


async def test_wrong_code_is_forgotten_after_an_hour(guesses: Guesses) -> None:
    await guesses.fail_codes(1)
    guesses.now += 5
    await guesses.fail_codes(18)
    guesses.now += 3585
    await guesses.fail_codes(1)
    assert await guesses.wait(code=True) == 10
    guesses.now += 10
    await guesses.fail_codes(1)
    assert await guesses.wait(code=True) == 5
    guesses.now += 5
    assert await guesses.wait(code=True) == 0


async def test_longer_of_both_waits_is_reported(guesses: Guesses) -> None:
    await guesses.fail_codes(20)
    guesses.now += 30
    await guesses.fail(times=10)
    assert await guesses.wait(code=True) == 30
    guesses.now += 29.5
    await guesses.fail()
    assert await guesses.wait(code=True) == 2


@pytest.fixture
def few() -> Guesses:
    """Attempts at a throttle with room for three addresses: A, B and C."""
    return Guesses(max_networks=3)


A, B, C, NEWCOMER = "192.0.2.10", "192.0.2.11", "192.0.2.12", "192.0.2.99"


async def test_full_table_evicts_the_address_with_the_fewest_failures(few: Guesses) -> None:
    await few.fail(A, times=10)
    await few.fail(C, times=10)
    await few.fail(B, times=2)

    await few.leave(NEWCOMER)

    assert await few.wait(A) == await few.wait(C) == 1


async def test_new_address_inherits_the_failures_of_the_evicted_one(few: Guesses) -> None:
    await few.fail(A, times=5)
    await few.fail(B, times=4)
    await few.fail(C, times=5)

    await few.fail(NEWCOMER, times=5)
    assert await few.wait(NEWCOMER) == 0
    await few.fail(NEWCOMER)
    assert await few.wait(NEWCOMER) == 1


async def test_new_address_has_a_first_attempt_in_a_full_table(few: Guesses) -> None:
    for address in (A, B, C):
        await few.fail(address, times=10)

    assert await few.wait(NEWCOMER) == 0
    await few.succeed(NEWCOMER)
    await few.fail(NEWCOMER, times=9)
    assert await few.wait(NEWCOMER) == 0


async def test_full_table_evicts_the_least_recently_used_of_equals(few: Guesses) -> None:
    for address in (A, B, C):
        await few.fail(address, times=10)
    assert await few.wait(A) == 1  # a use

    await few.leave(NEWCOMER)

    assert await few.wait(C) == await few.wait(A) == 1
    assert await few.wait(B) == 0


async def test_full_table_keeps_an_address_with_a_pending_attempt(few: Guesses) -> None:
    async with few.under_way(A, tries=10):
        await few.fail(B)
        await few.fail(C)

        await few.leave(NEWCOMER)

        assert await few.wait(A) == inf


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:DB8:1:2::", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::", "2001:db8:1:3::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        ("", "no address"),
        ("unix:", "no address"),
    ],
)
def test_network_of_an_address(address: str, network: str) -> None:
    assert network_of(address) == network
