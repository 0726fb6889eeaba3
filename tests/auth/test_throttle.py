"""Limits on guessing passwords and codes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest

from smartlinkd.auth.throttle import MAX_NETWORKS, Throttle, network_of
from smartlinkd.errors import TooManyTries, WrongCredential

HERE, THERE = "192.0.2.1", "192.0.2.2"


class Guesses:
    """Attempts at a throttle, whose clock is set by hand."""

    def __init__(self, max_networks: int = MAX_NETWORKS) -> None:
        self.now = 0.0
        self.throttle = Throttle(lambda: self.now, max_networks=max_networks)

    def fail(self, address: str = HERE, *, times: int = 1, code: bool = False) -> None:
        for _ in range(times):
            with (
                pytest.raises(WrongCredential, match="that one"),
                self.throttle.attempt(address, code=code),
            ):
                raise WrongCredential("that one")

    def fail_codes(self, times: int) -> None:
        """Each from an address of its own, so that only the limit over all is spent."""
        for n in range(times):
            self.fail(f"203.0.113.{n}", code=True)

    def succeed(self, address: str = HERE) -> None:
        with self.throttle.attempt(address) as tries:
            tries.succeeded()

    def leave(self, address: str = HERE) -> None:
        """Neither right nor wrong: half a login, or an asker that went away."""
        with suppress(RuntimeError), self.throttle.attempt(address):
            raise RuntimeError

    def wait(self, address: str = HERE, *, code: bool = False) -> int:
        """Seconds until the next try, 0 when it may be made now."""
        try:
            with self.throttle.attempt(address, code=code):
                return 0
        except TooManyTries as refused:
            return refused.retry_after

    @contextmanager
    def under_way(self, address: str = HERE, *, tries: int = 1) -> Iterator[None]:
        with ExitStack() as stack:
            for _ in range(tries):
                stack.enter_context(self.throttle.attempt(address))
            yield


@pytest.fixture
def guesses() -> Guesses:
    return Guesses()


def test_wait_doubles_up_to_a_minute(guesses: Guesses) -> None:
    guesses.fail(times=10)
    waits = []
    for _ in range(8):
        waits.append(guesses.wait())
        guesses.now += waits[-1]
        guesses.fail()
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]


def test_wait_passes_in_whole_seconds_rounded_up(guesses: Guesses) -> None:
    guesses.fail(times=10)
    guesses.now += 1
    guesses.fail()
    assert guesses.wait() == 2
    guesses.now += 0.5
    assert guesses.wait() == 2  # whole seconds, rounded up
    guesses.now += 0.5
    assert guesses.wait() == 1
    guesses.now += 1
    assert guesses.wait() == 0


def test_wait_begins_with_the_verdict(guesses: Guesses) -> None:
    guesses.fail(times=9)
    slow = guesses.throttle.attempt(HERE)
    slow.__enter__()
    guesses.now += 10
    slow.__exit__(WrongCredential, WrongCredential(), None)
    assert guesses.wait() == 1


def test_thousands_of_failures_do_not_overflow(guesses: Guesses) -> None:
    guesses.fail(times=10)
    for _ in range(2000):
        guesses.now += 60
        guesses.fail()
    assert guesses.wait() == 60


def test_success_resets_its_address(guesses: Guesses) -> None:
    guesses.fail(times=10)
    guesses.now += 1
    guesses.succeed()
    guesses.fail(times=9)
    assert guesses.wait() == 0


def test_attempt_without_a_verdict_changes_nothing(guesses: Guesses) -> None:
    guesses.fail(times=9)
    for _ in range(20):
        guesses.leave()
    assert guesses.wait() == 0
    guesses.fail()
    assert guesses.wait() == 1
    guesses.now += 1
    guesses.leave()
    guesses.fail()
    assert guesses.wait() == 2


def test_pending_attempts_count_as_failures(guesses: Guesses) -> None:
    guesses.fail(times=4)
    with guesses.under_way(tries=5):
        assert guesses.wait() == 0
        with guesses.under_way():
            assert guesses.wait() == 1
            assert guesses.wait(THERE) == 0
    assert guesses.wait() == 0


def test_code_does_not_wait_for_pending_passwords(guesses: Guesses) -> None:
    with guesses.under_way(tries=10):
        assert guesses.wait() == 1
        assert guesses.wait(code=True) == 0
    guesses.fail(times=10)
    assert guesses.wait(code=True) == 1


def test_one_attempt_at_a_time_is_pending_after_ten_failures(guesses: Guesses) -> None:
    guesses.fail(times=10)
    guesses.now += 1
    with guesses.under_way():
        assert guesses.wait() == 1
    assert guesses.wait() == 0


def test_wrong_codes_beyond_20_are_one_a_minute(guesses: Guesses) -> None:
    guesses.fail_codes(19)
    assert guesses.wait(code=True) == 0
    guesses.fail_codes(1)
    assert guesses.wait(code=True) == 60
    for _ in range(70):  # longer than the hour
        guesses.now += 59
        assert guesses.wait(code=True) == 1
        guesses.now += 1
        guesses.fail(code=True)
        assert guesses.wait(code=True) == 60


def test_wrong_code_is_forgotten_after_an_hour(guesses: Guesses) -> None:
    guesses.fail_codes(1)
    guesses.now += 5
    guesses.fail_codes(18)
    guesses.now += 3585
    guesses.fail_codes(1)
    assert guesses.wait(code=True) == 10
    guesses.now += 10
    guesses.fail_codes(1)
    assert guesses.wait(code=True) == 5
    guesses.now += 5
    assert guesses.wait(code=True) == 0


def test_longer_of_both_waits_is_reported(guesses: Guesses) -> None:
    guesses.fail_codes(20)
    guesses.now += 30
    guesses.fail(times=10)
    assert guesses.wait(code=True) == 30
    guesses.now += 29.5
    guesses.fail()
    assert guesses.wait(code=True) == 2


@pytest.fixture
def few() -> Guesses:
    """Attempts at a throttle with room for three addresses: A, B and C."""
    return Guesses(max_networks=3)


A, B, C, NEWCOMER = "192.0.2.10", "192.0.2.11", "192.0.2.12", "192.0.2.99"


def test_full_table_evicts_the_address_with_the_fewest_failures(few: Guesses) -> None:
    few.fail(A, times=10)
    few.fail(C, times=10)
    few.fail(B, times=2)

    few.leave(NEWCOMER)

    assert few.wait(A) == few.wait(C) == 1


def test_new_address_inherits_the_failures_of_the_evicted_one(few: Guesses) -> None:
    few.fail(A, times=5)
    few.fail(B, times=4)
    few.fail(C, times=5)

    few.fail(NEWCOMER, times=5)
    assert few.wait(NEWCOMER) == 0
    few.fail(NEWCOMER)
    assert few.wait(NEWCOMER) == 1


def test_new_address_has_a_first_attempt_in_a_full_table(few: Guesses) -> None:
    for address in (A, B, C):
        few.fail(address, times=10)

    assert few.wait(NEWCOMER) == 0
    few.succeed(NEWCOMER)
    few.fail(NEWCOMER, times=9)
    assert few.wait(NEWCOMER) == 0


def test_full_table_evicts_the_least_recently_used_of_equals(few: Guesses) -> None:
    for address in (A, B, C):
        few.fail(address, times=10)
    assert few.wait(A) == 1  # a use

    few.leave(NEWCOMER)

    assert few.wait(C) == few.wait(A) == 1
    assert few.wait(B) == 0


def test_full_table_keeps_an_address_with_a_pending_attempt(few: Guesses) -> None:
    with few.under_way(A, tries=10):
        few.fail(B)
        few.fail(C)

        few.leave(NEWCOMER)

        assert few.wait(A) == 1


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
