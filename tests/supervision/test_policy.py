"""The rules of restarting."""

from __future__ import annotations

import random

import pytest

from smartlinkd.supervision.policy import Backoff, Intensity, RestartWindow


class FixedChance(random.Random):
    def __init__(self, value: float) -> None:
        super().__init__()
        self._value = value

    def random(self) -> float:
        return self._value


def test_backoff_doubles_up_to_the_longest_wait() -> None:
    backoff = Backoff(jitter=0.0)
    waits = [backoff.wait(failures, random.Random(1)) for failures in (*range(1, 9), 100_000)]
    assert waits == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]


def test_backoff_without_a_longest_wait_does_not_overflow() -> None:
    assert Backoff(longest=float("inf")).wait(100_000, FixedChance(0.0)) == 0.5 * 2.0**32


@pytest.mark.parametrize(
    ("failures", "chance", "wait"),
    [(1, 0.0, 0.5), (3, 0.0, 2.0), (3, 0.5, 1.8), (3, 1.0, 1.6), (50, 1.0, 24.0)],
)
def test_backoff_jitter_shortens_the_wait_by_its_share(
    failures: int, chance: float, wait: float
) -> None:
    assert Backoff(jitter=0.2).wait(failures, FixedChance(chance)) == pytest.approx(wait)


@pytest.mark.parametrize(
    ("restarts", "times", "exceeded"),
    [
        (3, (0.0, 1.0, 2.0, 3.0, 4.0), (False, False, False, True, True)),
        (0, (5.0,), (True,)),
        (1, (100.0, 160.0), (False, True)),
        (1, (100.0, 160.001), (False, False)),
        (2, (0.0, 36.0, 72.0, 108.0, 114.0), (False, False, False, False, True)),
    ],
    ids=["over the limit", "none allowed", "as old as the period", "older", "sliding"],
)
def test_restart_window_is_exceeded_by_more_restarts_than_its_period_allows(
    restarts: int, times: tuple[float, ...], exceeded: tuple[bool, ...]
) -> None:
    window = RestartWindow(Intensity(restarts=restarts, period=60.0))
    assert tuple(window.exceeded_by(now) for now in times) == exceeded
