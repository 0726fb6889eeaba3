"""The judgement: a leak is found, whatever hides it; noise is none."""

from __future__ import annotations

import pytest

from tests.soak.jobs import Kind
from tests.soak.judgement import (
    COLD,
    FLAT,
    LIMITS,
    YOUNG,
    Finding,
    Verdict,
    alone,
    findings,
)
from tests.soak.made_up import made_up
from tests.soak.samples import Sample


def finding(made: list[Sample], what: str) -> Finding:
    (found,) = (each for each in findings(made) if each.what == what)
    return found


DAEMON = "the daemon's memory"
CHROMIUM = "Chromium's main process"


def test_noise_is_no_leak() -> None:
    assert {each.verdict for each in findings(made_up())} == {Verdict.HELD}


def test_two_kilobytes_a_conversion_in_the_daemon() -> None:
    found = finding(made_up(shapes={"daemon private": lambda done, _: 2.0 * done}), DAEMON)
    assert found.verdict is Verdict.BROKEN
    assert found.slope.value == pytest.approx(2.0, abs=0.1)
    assert found.limit == LIMITS.daemon


def test_a_leak_below_the_limit_is_told_and_held() -> None:
    found = finding(made_up(shapes={"daemon private": lambda done, _: 0.5 * done}), DAEMON)
    assert found.verdict is Verdict.HELD
    assert found.slope.value == pytest.approx(0.5, abs=0.1)


def test_a_cold_daemon_may_grow() -> None:
    made = made_up(shapes={"daemon private": lambda done, _: 100.0 * min(done, COLD)})
    assert finding(made, DAEMON).verdict is Verdict.HELD


def test_a_leak_in_chromium_is_found_although_crashes_take_it_back() -> None:
    made = made_up(crash_every=1000, shapes={"chromium private": lambda _, age: 30.0 * age})
    found = finding(made, CHROMIUM)
    assert found.verdict is Verdict.BROKEN
    assert found.slope.value == pytest.approx(30, abs=2)
    assert found.limit == LIMITS.chromium


def test_each_chromium_may_grow_while_it_is_young() -> None:
    made = made_up(
        crash_every=1000, shapes={"chromium private": lambda _, age: 200.0 * min(age, YOUNG)}
    )
    assert finding(made, CHROMIUM).verdict is Verdict.HELD


def test_a_short_run_says_that_it_is_too_short() -> None:
    assert finding(made_up(rounds=23), DAEMON).verdict is Verdict.UNDECIDED


def test_a_run_that_has_not_begun_says_so_of_all() -> None:
    assert {each.verdict for each in findings(made_up(rounds=2))} == {Verdict.UNDECIDED}


@pytest.mark.parametrize("column", FLAT)
def test_a_thing_that_is_left_every_thousandth_time(column: str) -> None:
    made = made_up(shapes={column: lambda done, _: 30.0 + done // 1000})
    assert finding(made, column).verdict is Verdict.BROKEN


def test_one_more_and_one_less_is_flat() -> None:
    made = made_up(shapes={"daemon descriptors": lambda done, _: 30.0 + done // 50 % 2})
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
