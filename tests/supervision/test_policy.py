"""The rules of restarting: which ends count, how long the waits are, when it is too much."""

from __future__ import annotations

import random

import pytest

from smartlinkd.supervision.policy import Backoff, Intensity, Restart, RestartWindow, Strategy


class Fixed(random.Random):
    """Always the same dice."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self._value = value

    def random(self) -> float:
        return self._value


def test_the_words_are_otps() -> None:
    assert [str(restart) for restart in Restart] == ["permanent", "transient", "temporary"]
    assert [str(strategy) for strategy in Strategy] == ["one_for_one", "rest_for_one"]


@pytest.mark.parametrize(
    ("restart", "after_error", "after_return"),
    [
        (Restart.PERMANENT, True, True),
        (Restart.TRANSIENT, True, False),
        (Restart.TEMPORARY, False, False),
    ],
)
def test_which_ends_are_followed_by_a_restart(
    restart: Restart, after_error: bool, after_return: bool
) -> None:
    assert restart.wanted(failed=True) is after_error
    assert restart.wanted(failed=False) is after_return


def test_waits_double_up_to_the_longest() -> None:
    backoff = Backoff(first=0.5, longest=30.0, jitter=0.0)
    waits = [backoff.wait(failures, random.Random(1)) for failures in range(1, 10)]
    assert waits == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]


def test_ever_so_many_failures_still_give_the_longest_wait() -> None:
    assert Backoff(longest=30.0, jitter=0.0).wait(100_000, random.Random(1)) == 30.0


def test_an_unbounded_longest_wait_does_not_overflow() -> None:
    wait = Backoff(first=0.5, longest=float("inf"), jitter=0.0).wait(100_000, random.Random(1))
    assert wait == 0.5 * 2.0**32


@pytest.mark.parametrize(("dice", "wait"), [(0.0, 4.0), (0.5, 3.6), (1.0, 3.2)])
def test_jitter_takes_its_share_off_the_wait(dice: float, wait: float) -> None:
    assert Backoff(first=1.0, jitter=0.2).wait(3, Fixed(dice)) == pytest.approx(wait)


def test_jitter_is_taken_off_the_longest_wait_too() -> None:
    assert Backoff(longest=30.0, jitter=0.2).wait(50, Fixed(1.0)) == pytest.approx(24.0)


def test_waits_of_seeded_dice_differ_and_stay_in_bounds() -> None:
    chance = random.Random(7)
    waits = [Backoff(first=1.0, jitter=0.2).wait(1, chance) for _ in range(1000)]
    assert min(waits) >= 0.8
    assert max(waits) <= 1.0
    assert max(waits) - min(waits) > 0.19


def test_the_bounds_are_those_that_are_promised() -> None:
    assert Backoff() == Backoff(first=0.5, longest=30.0, healthy=60.0, jitter=0.2)
    assert Intensity() == Intensity(restarts=5, period=60.0)


def test_as_many_restarts_as_allowed_are_not_too_many() -> None:
    window = RestartWindow(Intensity(restarts=3, period=60.0))
    assert [window.exceeded_by(now) for now in (0.0, 1.0, 2.0)] == [False] * 3


def test_one_more_than_allowed_is_too_many() -> None:
    window = RestartWindow(Intensity(restarts=3, period=60.0))
    assert [window.exceeded_by(now) for now in (0.0, 1.0, 2.0, 3.0)] == [False, False, False, True]


def test_no_restart_allowed_makes_the_first_too_many() -> None:
    assert RestartWindow(Intensity(restarts=0)).exceeded_by(5.0)


def test_a_restart_just_as_old_as_the_period_still_counts() -> None:
    window = RestartWindow(Intensity(restarts=1, period=60.0))
    window.exceeded_by(100.0)
    assert window.exceeded_by(160.0)


def test_a_restart_older_than_the_period_no_longer_counts() -> None:
    window = RestartWindow(Intensity(restarts=1, period=60.0))
    window.exceeded_by(100.0)
    assert not window.exceeded_by(160.001)


def test_the_period_slides() -> None:
    window = RestartWindow(Intensity(restarts=2, period=10.0))
    times = (0.0, 6.0, 12.0, 18.0, 19.0)  # never three in ten seconds, but for the last
    assert [window.exceeded_by(now) for now in times] == [False, False, False, False, True]


def test_it_is_still_too_many_when_it_goes_on() -> None:
    window = RestartWindow(Intensity(restarts=1, period=10.0))
    assert [window.exceeded_by(now) for now in (0.0, 1.0, 2.0, 3.0)] == [False, True, True, True]
