"""The judgement: a leak is found, whatever hides it; noise is none."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import pytest

from tests.soak.jobs import Kind
from tests.soak.judgement import (
    FLAT,
    FLAT_IN_CHROMIUM,
    LIMITS,
    YOUNG,
    Finding,
    Verdict,
    alone,
    findings,
)
from tests.soak.samples import Sample

COLUMNS = ("daemon private", "chromium private", *FLAT, *FLAT_IN_CHROMIUM)
Shape = Callable[[int, int], float]
"""Conversions since the beginning, and in this Chromium's life → a value."""


def samples(
    *, shapes: Mapping[str, Shape] | None = None, crash_every: int = 10_000, rounds: int = 120
) -> list[Sample]:
    """Fifty conversions a round; all columns are flat and a little noisy, but for `shapes`."""
    chance = random.Random(3)
    shapes = shapes or {}
    made = []
    for place in range(rounds):
        done = 50 * (place + 1)
        values = {
            column: shapes[column](done, done % crash_every) if column in shapes else 30.0
            for column in COLUMNS
        }
        values["daemon private"] += chance.gauss(120_000, 100)
        values["chromium private"] += chance.gauss(30_000, 500)
        jobs = {str(kind): 0 for kind in Kind} | {Kind.CONVERSION: done}
        name = "warm-up" if place < 10 else "mixed"
        made.append(Sample(place, int(place >= 10), name, done // crash_every, jobs, values))
    return made


def finding(made: list[Sample], what: str) -> Finding:
    (found,) = (each for each in findings(made) if each.what == what)
    return found


DAEMON = "the daemon's memory"
CHROMIUM = "Chromium's main process"


def test_noise_is_no_leak() -> None:
    assert {each.verdict for each in findings(samples())} == {Verdict.HELD}


def test_two_kilobytes_a_conversion_in_the_daemon() -> None:
    found = finding(samples(shapes={"daemon private": lambda done, _: 2.0 * done}), DAEMON)
    assert found.verdict is Verdict.BROKEN
    assert found.slope.value == pytest.approx(2.0, abs=0.1)
    assert found.limit == LIMITS.daemon


def test_a_leak_below_the_limit_is_told_and_held() -> None:
    found = finding(samples(shapes={"daemon private": lambda done, _: 0.5 * done}), DAEMON)
    assert found.verdict is Verdict.HELD
    assert found.slope.value == pytest.approx(0.5, abs=0.1)


def test_the_warm_up_does_not_count() -> None:
    made = samples(shapes={"daemon private": lambda done, _: 100.0 * min(done, 500)})
    assert finding(made, DAEMON).verdict is Verdict.HELD


def test_a_leak_in_chromium_is_found_although_crashes_take_it_back() -> None:
    made = samples(crash_every=1000, shapes={"chromium private": lambda _, age: 30.0 * age})
    found = finding(made, CHROMIUM)
    assert found.verdict is Verdict.BROKEN
    assert found.slope.value == pytest.approx(30, abs=2)
    assert found.limit == LIMITS.chromium


def test_each_chromium_may_grow_while_it_is_young() -> None:
    made = samples(
        crash_every=1000, shapes={"chromium private": lambda _, age: 200.0 * min(age, YOUNG)}
    )
    assert finding(made, CHROMIUM).verdict is Verdict.HELD


def test_a_short_run_says_that_it_is_too_short() -> None:
    made = samples(rounds=13)
    assert finding(made, DAEMON).verdict is Verdict.UNDECIDED


@pytest.mark.parametrize("column", FLAT)
def test_a_thing_that_is_left_every_thousandth_time(column: str) -> None:
    made = samples(shapes={column: lambda done, _: 30.0 + done // 1000})
    assert finding(made, column).verdict is Verdict.BROKEN


def test_one_more_and_one_less_is_flat() -> None:
    made = samples(shapes={"daemon descriptors": lambda done, _: 30.0 + done // 50 % 2})
    assert finding(made, "daemon descriptors").verdict is Verdict.HELD


def test_a_stretch_alone_begins_with_the_sample_before_it() -> None:
    def sample(place: int, name: str, logins: int) -> Sample:
        jobs = {str(kind): 0 for kind in Kind} | {Kind.LOGIN: logins}
        return Sample(place, place // 2, name, 0, jobs, {"daemon private": 10.0 * logins})

    made = [
        sample(0, "mixed", 1),
        sample(1, "mixed", 3),
        sample(2, "logins alone", 10),
        sample(3, "logins alone", 20),
        sample(4, "mixed", 22),
    ]
    assert alone(made, Kind.LOGIN, "daemon private") == [[(3, 30.0), (10, 100.0), (20, 200.0)]]
    assert alone(made, Kind.SYNC, "daemon private") == []
