from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest

from smartlinkd.auth import throttle
from smartlinkd.auth.throttle import Throttle, network_of
from smartlinkd.errors import TooManyTries, WrongCredential

HERE, THERE = "192.0.2.1", "192.0.2.2"


class Desk:
    """A throttle with a clock that is set by hand, and the usual ways to try."""

    def __init__(self) -> None:
        self.now = 0.0
        self.throttle = Throttle(lambda: self.now)

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
def desk() -> Desk:
    return Desk()


def test_ten_failures_are_free(desk: Desk) -> None:
    desk.fail(times=9)
    assert desk.wait() == 0
    desk.fail()
    assert desk.wait() == 1


def test_the_refusal_says_when_to_come_again(desk: Desk) -> None:
    desk.fail(times=10)
    desk.now += 1
    desk.fail()
    with (
        pytest.raises(TooManyTries, match=r"^too many failed tries; try again in 2 s$"),
        desk.throttle.attempt(HERE),
    ):
        pass


def test_the_wait_doubles_up_to_a_minute(desk: Desk) -> None:
    desk.fail(times=10)
    waits = []
    for _ in range(8):
        waits.append(desk.wait())
        desk.now += waits[-1]
        desk.fail()
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]


def test_the_wait_goes_by(desk: Desk) -> None:
    desk.fail(times=10)
    desk.now += 1
    desk.fail()
    assert desk.wait() == 2
    desk.now += 0.5
    assert desk.wait() == 2  # whole seconds, rounded up
    desk.now += 0.5
    assert desk.wait() == 1
    desk.now += 1
    assert desk.wait() == 0


def test_the_wait_begins_with_the_verdict(desk: Desk) -> None:
    desk.fail(times=9)
    slow = desk.throttle.attempt(HERE)
    slow.__enter__()
    desk.now += 10
    slow.__exit__(WrongCredential, WrongCredential(), None)
    assert desk.wait() == 1


def test_a_year_of_failures_does_not_overflow(desk: Desk) -> None:
    desk.fail(times=10)
    for _ in range(2000):
        desk.now += 60
        desk.fail()
    assert desk.wait() == 60


def test_success_resets_the_address(desk: Desk) -> None:
    desk.fail(times=10)
    desk.now += 1
    desk.succeed()
    desk.fail(times=9)
    assert desk.wait() == 0


def test_what_is_neither_right_nor_wrong_changes_nothing(desk: Desk) -> None:
    desk.fail(times=9)
    for _ in range(20):
        desk.leave()
    assert desk.wait() == 0
    desk.fail()
    assert desk.wait() == 1
    desk.now += 1
    desk.leave()
    desk.fail()
    assert desk.wait() == 2


def test_a_refused_try_does_not_count(desk: Desk) -> None:
    desk.fail(times=10)
    for _ in range(20):
        assert desk.wait() == 1


def test_addresses_are_throttled_apart(desk: Desk) -> None:
    desk.fail(HERE, times=10)
    assert desk.wait(HERE) == 1
    assert desk.wait(THERE) == 0


def test_tries_under_way_count_as_failures(desk: Desk) -> None:
    desk.fail(times=4)
    with desk.under_way(tries=5):
        assert desk.wait() == 0
        with desk.under_way():
            assert desk.wait() == 1
            assert desk.wait(THERE) == 0
    assert desk.wait() == 0


def test_a_code_does_not_wait_for_passwords_under_way(desk: Desk) -> None:
    with ExitStack() as under_way:
        for _ in range(10):
            under_way.enter_context(desk.throttle.attempt(HERE))
        assert desk.wait() == 1
        assert desk.wait(code=True) == 0
    for _ in range(10):
        desk.fail()
    assert desk.wait(code=True) == 1


def test_past_the_free_ones_only_one_is_under_way(desk: Desk) -> None:
    desk.fail(times=10)
    desk.now += 1
    with desk.under_way():
        assert desk.wait() == 1
    assert desk.wait() == 0


def test_tries_that_all_fail_together_all_count(desk: Desk) -> None:
    side_by_side = [desk.throttle.attempt(HERE) for _ in range(10)]
    for one in side_by_side:
        one.__enter__()
    for one in side_by_side:
        one.__exit__(WrongCredential, WrongCredential(), None)
    assert desk.wait() == 1


def test_twenty_wrong_codes_are_free_whoever_sends_them(desk: Desk) -> None:
    for n in range(19):
        desk.fail(f"198.51.100.{n}", code=True)
    assert desk.wait(code=True) == 0
    desk.fail(THERE, code=True)
    assert desk.wait(code=True) == 60


def test_then_one_wrong_code_a_minute(desk: Desk) -> None:
    desk.fail_codes(20)
    for _ in range(70):  # longer than the hour
        desk.now += 59
        assert desk.wait(code=True) == 1
        desk.now += 1
        desk.fail(code=True)
        assert desk.wait(code=True) == 60


def test_wrong_codes_are_forgotten_after_an_hour(desk: Desk) -> None:
    desk.fail_codes(1)
    desk.now += 5
    desk.fail_codes(18)
    desk.now += 3585
    desk.fail_codes(1)
    assert desk.wait(code=True) == 10
    desk.now += 10
    desk.fail_codes(1)
    assert desk.wait(code=True) == 5
    desk.now += 5
    assert desk.wait(code=True) == 0


def test_success_leaves_the_limit_of_wrong_codes_alone(desk: Desk) -> None:
    desk.fail_codes(20)
    desk.succeed()
    assert desk.wait(code=True) == 60


def test_passwords_do_not_wait_for_codes(desk: Desk) -> None:
    desk.fail_codes(20)
    assert desk.wait() == 0


def test_wrong_passwords_are_no_wrong_codes(desk: Desk) -> None:
    for n in range(20):
        desk.fail(f"198.51.100.{n}")
    assert desk.wait(code=True) == 0


def test_wrong_codes_count_for_their_address_too(desk: Desk) -> None:
    desk.fail(times=10, code=True)
    assert desk.wait() == 1


def test_the_longer_wait_is_told(desk: Desk) -> None:
    desk.fail_codes(20)
    desk.now += 30
    desk.fail(times=10)
    assert desk.wait(code=True) == 30
    desk.now += 29.5
    desk.fail()
    assert desk.wait(code=True) == 2


def test_when_both_waits_are_long_over_a_code_is_checked(desk: Desk) -> None:
    desk.fail(times=10)
    desk.fail_codes(20)
    desk.now += 1000
    assert desk.wait(code=True) == 0


@pytest.fixture
def small_desk(monkeypatch: pytest.MonkeyPatch) -> Desk:
    """One whose table has room for three addresses: a, b and c."""
    monkeypatch.setattr(throttle, "MAX_ADDRESSES", 3)
    return Desk()


A, B, C, NEWCOMER = "192.0.2.10", "192.0.2.11", "192.0.2.12", "192.0.2.99"


def test_the_record_with_the_fewest_failures_gives_way(small_desk: Desk) -> None:
    small_desk.fail(A, times=10)
    small_desk.fail(C, times=10)
    small_desk.fail(B, times=2)

    small_desk.leave(NEWCOMER)

    assert small_desk.wait(A) == small_desk.wait(C) == 1


def test_a_newcomer_inherits_the_failures_that_gave_way(small_desk: Desk) -> None:
    small_desk.fail(A, times=5)
    small_desk.fail(B, times=4)
    small_desk.fail(C, times=5)

    small_desk.fail(NEWCOMER, times=5)
    assert small_desk.wait(NEWCOMER) == 0
    small_desk.fail(NEWCOMER)
    assert small_desk.wait(NEWCOMER) == 1


def test_there_is_room_for_as_many_as_there_may_be(small_desk: Desk) -> None:
    small_desk.fail(A, times=5)
    small_desk.fail(B, times=5)

    small_desk.fail(NEWCOMER, times=9)
    assert small_desk.wait(NEWCOMER) == 0


def test_a_newcomers_first_try_is_free_however_bad_the_flood(small_desk: Desk) -> None:
    for address in (A, B, C):
        small_desk.fail(address, times=10)

    assert small_desk.wait(NEWCOMER) == 0
    small_desk.succeed(NEWCOMER)
    small_desk.fail(NEWCOMER, times=9)
    assert small_desk.wait(NEWCOMER) == 0


def test_of_equals_the_one_unused_for_longest_gives_way(small_desk: Desk) -> None:
    for address in (A, B, C):
        small_desk.fail(address, times=10)
    assert small_desk.wait(A) == 1  # a use

    small_desk.leave(NEWCOMER)

    assert small_desk.wait(C) == small_desk.wait(A) == 1
    assert small_desk.wait(B) == 0


def test_the_table_holds_4096_addresses(desk: Desk) -> None:
    for n in range(4095):
        desk.fail(f"10.0.{n // 256}.{n % 256}")

    desk.fail(HERE, times=9)
    assert desk.wait(HERE) == 0
    desk.fail(THERE, times=9)
    assert desk.wait(THERE) == 1


def test_one_try_under_way_is_enough_to_stay(small_desk: Desk) -> None:
    small_desk.fail(A, times=10)
    small_desk.now += 1
    with small_desk.under_way(A):
        small_desk.fail(B, times=10)
        small_desk.now += 60
        small_desk.fail(B)
        small_desk.fail(C, times=10)
        small_desk.now += 60
        small_desk.fail(C)

        small_desk.leave(NEWCOMER)

        assert small_desk.wait(A) == 1


def test_an_address_with_a_try_under_way_keeps_its_record(small_desk: Desk) -> None:
    with small_desk.under_way(A, tries=10):
        small_desk.fail(B)
        small_desk.fail(C)

        small_desk.leave(NEWCOMER)

        assert small_desk.wait(A) == 1


def test_two_networks_cannot_push_each_other_out(small_desk: Desk) -> None:
    for address in (A, B, C):
        small_desk.fail(address, times=2)
    one, other = "198.51.100.1", "198.51.100.2"

    guesses = 0
    while small_desk.wait(one) == 0 and small_desk.wait(other) == 0:
        small_desk.fail(one)
        small_desk.fail(other)
        guesses += 2

    assert guesses <= 20


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
def test_what_counts_as_one_address(address: str, network: str) -> None:
    assert network_of(address) == network


def test_an_ipv6_customer_is_one_address(desk: Desk) -> None:
    for n in range(10):
        desk.fail(f"2001:db8::{n}")
    assert desk.wait("2001:db8::ffff") == 1
    assert desk.wait("2001:db8:0:1::") == 0
