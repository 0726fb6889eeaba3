"""Each kind of leak is found, named, and charged to the test that left it, and to no other."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.hygiene.conftest import Outcome, RunTests

# What has to be said of each of the leakers, by what is … in `test_leaves_…`.
SAID = {
    "a_descriptor": "descriptor [0-9]+: /dev/zero",
    "a_socket": "descriptor [0-9]+: socket:",
    "a_thread": "thread [0-9]+: the thread, at .*leakers.py",
    "a_thread_of_trios": "thread [0-9]+: .*wait",
    "a_system_task": "the task",
    "a_child": "child process [0-9]+: sleep 1001",
    "a_zombie": "child process [0-9]+: true, which has ended and was not waited for",
    "an_orphan": "stray process [0-9]+: sleep 1002",
    "an_orphan_with_its_environment_cleaned": "stray process [0-9]+: sleep 1003",
    "a_folder": "temporary file the-folder-",
    "a_variable": "environment variable THE_VARIABLE=1$",
    "a_variable_out": r"environment variable THE_VARIABLE=1 \(is no more\)",
    "another_working_folder": "working folder .*test_leaves_another",
    "a_signal_handler": "handler of SIGUSR1: 1",
    "a_level": "logger the.logger: level=10",
    "a_handler": "logger root: .*StreamHandler",
    "logging_off": "logger all: disabled up to 40",
    "a_failure_and_a_folder": "temporary file left-by-a-failure-",
    "it_to_a_fixture": "temporary file left-by-a-fixture-",
    "a_coroutine": "coroutine 'sleep' was never awaited",
    "a_file_open": "unclosed file .*/dev/zero",
    "a_file_open_in_a_circle": "unclosed file .*/dev/zero",
    "an_error_that_nobody_can_catch": "ValueError: from its end",
    "an_error_in_a_thread": "ValueError: from the thread",
    "a_folder_while_another_is_held": "temporary file beside-the-holders-",
    "it_to_the_last": r"descriptor [0-9]+: /dev/null \(taken by the fixture keeper\)",
}


@pytest.fixture(scope="module")
def outcome(run_tests: RunTests) -> Outcome:
    return run_tests("leakers.py")


@pytest.mark.parametrize("name", SAID)
def test_what_was_left_is_named(outcome: Outcome, name: str) -> None:
    assert f"test_leaves_{name}" in outcome.failed, outcome.output
    said = outcome.failed[f"test_leaves_{name}"]
    assert re.search(SAID[name], said, re.MULTILINE), said


def test_nobody_else_is_blamed(outcome: Outcome) -> None:
    assert set(outcome.failed) == {f"test_leaves_{name}" for name in SAID}
    assert {name.partition("_")[2].partition("_")[0] for name in outcome.passed} == {"clean"}


def test_the_failure_itself_is_told_too(outcome: Outcome) -> None:
    assert "the failure" in outcome.failed["test_leaves_a_failure_and_a_folder"]
    assert "the fixture's failure" in outcome.failed["test_leaves_it_to_a_fixture"]


def test_garbage_is_charged_to_its_module(outcome: Outcome) -> None:
    assert "in the garbage of leakers.py" in outcome.failed["test_leaves_it_to_the_last"]
    assert "coroutine 'sleep' was never awaited" in outcome.failed["test_leaves_it_to_the_last"]
