"""`./run test --repeat`: as often as asked, each time in another order, until the first failure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from subprocess import CompletedProcess

import pytest

from tests.hygiene import repeat

Runs = list[tuple[int, list[str]]]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    """Those that are made, with their seeds and arguments. From the fourth on they fail."""
    made: Runs = []

    def run_once(seed: int, more: Sequence[str]) -> CompletedProcess[str]:
        made.append((seed, [*more]))
        code = int(len(made) > 3)
        said = f"all that was said\n=== {1 - code} passed in 1.00s ===\n"
        return CompletedProcess([], code, stdout=said)

    monkeypatch.setattr(repeat, "run_once", run_once)
    return made


def test_each_run_has_another_seed(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    assert repeat.main(["3", "-k", "two words"]) == 0
    assert len({seed for seed, _ in runs}) == 3
    assert [more for _, more in runs] == [["-k", "two words"]] * 3
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"repeat: run 1 of 3, seed {runs[0][0]}: 1 passed in 1.00s"
    assert lines[3:] == ["repeat: 3 of 3 runs without a failure"]


def test_the_first_failure_ends_it_and_tells_its_seed(
    runs: Runs, capsys: pytest.CaptureFixture[str]
) -> None:
    assert repeat.main(["50", "-k", "it"]) == 1
    assert len(runs) == 4
    said = capsys.readouterr().out
    assert "all that was said\n=== 0 passed in 1.00s ===" in said
    assert "repeat: run 4 of 50 failed" in said
    assert f"./run test --repeat 1 --randomly-seed={runs[3][0]} -k it" in said
    assert "without a failure" not in said


def test_a_seed_is_taken_again(runs: Runs) -> None:
    repeat.main(["1", "--randomly-seed=42"])
    assert runs == [(42, [])]


def test_a_run_is_one_of_pytests_with_that_seed() -> None:
    told = repeat.run_once(42, ["--collect-only", "-q", "-k", "no_such_test_anywhere"])
    assert told.returncode == 5, told.stdout  # pytest's own: no tests
    assert re.search(r"no tests collected \(\d{4} deselected\)", told.stdout)
