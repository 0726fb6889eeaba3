"""Tests that hang are ended, tell where they stood, and let the next ones run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.hygiene.conftest import Outcome, RunTests

NOTHING = r"nothing in it can go on: no task is ready, or will be at some time\. Its tasks:"
LATE = r"it was not over in time\. Its tasks:"
STUCK = r"it was not over after 1 s; this is where it stood"
# What has to be said, by what is … in `test_hangs_…`: why it was ended, and where it stood.
SAID = {
    "for_nothing": [
        NOTHING,
        r"  <test 'test_hangs_for_nothing'>: tests/hygiene/hangers.py:\d+ in test_hangs_for",
        r"      the one that waits: tests/hygiene/hangers.py:\d+ in wait_for, in Event.wait\(\)",
        r"      trio.sleep_forever: ",
    ],
    "on_an_autojump_clock": [NOTHING, r"hangers.py:\d+ in wait_for, in Event.wait\(\)"],
    "on_a_mock_clock": [NOTHING, r"in test_hangs_on_a_mock_clock, in sleep\(\)"],
    "on_a_clock_that_jumps_for_ever": [LATE, r"_for_ever, in sleep\(\)"],
    "on_a_socket": [LATE, r"in test_hangs_on_a_socket, in SocketListener.accept\(\)"],
    "behind_a_shield": [LATE, r"in test_hangs_behind_a_shield, in sleep\(\)"],
    "and_will_not_be_cancelled": [STUCK],
    "in_trios_thread": [STUCK, r"time\.sleep\(1000\)"],
    "in_a_fixture_of_trios": [NOTHING, r"  <fixture 'never_over'>: .* in wait_for"],
    "without_trio": [STUCK, r"subprocess\.run\("],
    "in_a_fixture": ["failed on setup", STUCK, r"time\.sleep\(1000\)"],
    "in_a_loop": [STUCK, "while True"],
}


@pytest.fixture(scope="module")
def outcome(run_tests: RunTests) -> Outcome:
    return run_tests("hangers.py")


@pytest.mark.parametrize("name", SAID)
def test_it_is_ended_and_tells_where_it_stood(outcome: Outcome, name: str) -> None:
    assert f"test_hangs_{name}" in outcome.failed, outcome.output
    said = outcome.failed[f"test_hangs_{name}"]
    for pattern in SAID[name]:
        assert re.search(pattern, said), said


def test_all_others_run(outcome: Outcome) -> None:
    assert set(outcome.failed) == {f"test_hangs_{name}" for name in SAID}
    assert len(outcome.passed) == 5
    assert all(name.startswith("test_passes_") for name in outcome.passed)


def test_what_no_signal_ends_ends_with_its_process(run_tests: RunTests) -> None:
    outcome = run_tests("deaf.py", "-n", "1", "-o", "faulthandler_timeout=1")
    assert outcome.passed == {"test_passes_after_it", "test_passes_with_half_a_character"}
    assert "crashed while running" in outcome.failed["test_hangs_without_hearing_the_alarm"]
    assert 'deaf.py", line' in outcome.output
