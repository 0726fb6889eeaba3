"""What is done when, and which jobs there are: by the seed and the minutes alone."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.soak.jobs import MOST_LINKS, Conversion, Crash, Job, Kickoff, Kind, Manner, Planner
from tests.soak.schedule import alone, round_seconds, schedule
from tests.soak.worker import End

EVERY_KIND = dict.fromkeys(Kind, 1.0)


def jobs(seed: int, number: int = 2000) -> list[Job]:
    planner = Planner(seed)
    return [planner.job(EVERY_KIND) for _ in range(number)]


def test_a_seed_gives_the_same_jobs_again() -> None:
    assert jobs(5) == jobs(5)
    assert jobs(5) != jobs(6)


def test_there_is_everything() -> None:
    made = jobs(1)
    manners = Counter(job.manner for job in made if isinstance(job, Conversion))
    ends = Counter(job.end for job in made if isinstance(job, Kickoff))
    assert set(manners) == set(Manner)
    assert set(ends) == set(End) - {End.KILL}
    assert len({type(job) for job in made}) == 5
    sizes = {len(links) for job in made if isinstance(job, Conversion) for links in job.requests}
    assert (min(sizes), max(sizes)) == (1, MOST_LINKS)


def test_no_product_is_asked_for_twice_but_by_a_crowd() -> None:
    seen: set[int] = set()
    for job in jobs(2):
        if isinstance(job, Conversion):
            of_request = [{link.item for link in links} for links in job.requests]
            items = set().union(*of_request)
            assert not seen & items
            seen |= items
            together = set.intersection(*of_request) if len(of_request) > 1 else set()
            assert len(together) == (1 if job.manner is Manner.CROWD else 0)


@pytest.mark.parametrize("minutes", [0.5, 5, 30, 240, 24 * 60])
def test_the_stretches_are_as_long_as_was_asked_for(minutes: float) -> None:
    assert sum(stretch.seconds for stretch in schedule(minutes)) == pytest.approx(minutes * 60)


@pytest.mark.parametrize("minutes", [10, 30, 240])
def test_a_soak_has_storms_calms_and_every_kind_alone(minutes: float) -> None:
    stretches = schedule(minutes)
    assert stretches[0].name == "warm-up"
    assert {stretch.name for stretch in stretches} == {
        "warm-up",
        "mixed",
        *map(alone, Kind),
    }
    storms = [place for place, stretch in enumerate(stretches) if stretch.storm]
    assert len(storms) >= 3
    assert not stretches[-1].storm
    # In the calm behind a storm is time for a Chromium to be young, and then to grow.
    assert stretches[1].storm
    calm = sum(stretch.seconds for stretch in stretches[2 : storms[1]])
    assert calm > 4 * stretches[1].seconds


def test_a_short_one_has_a_storm_too() -> None:
    assert [stretch.name for stretch in schedule(0.5)] == ["warm-up", "crashes", "mixed"]


def test_a_long_soak_has_longer_rounds() -> None:
    assert round_seconds(0.5) < round_seconds(5) < round_seconds(30) == round_seconds(600)


def test_crashes_of_a_calm_end_no_chromium() -> None:
    victims = {job.victim for job in jobs(3) if isinstance(job, Crash)}
    assert victims == {"tab", "worker"}
