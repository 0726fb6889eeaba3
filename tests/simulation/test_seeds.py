"""Simulate an hour of 20 seeds, and two seeds twice. `./run simulate` simulates longer ones."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.simulation.run import TAIL, simulate


@pytest.mark.parametrize("seed", range(1, 21))
def test_simulated_hour_breaks_no_promise(seed: int) -> None:
    outcome = simulate(seed, 1.0)
    assert not outcome.failures, outcome.description(TAIL)
    assert outcome.counts["conversions"] > 0


@pytest.mark.parametrize("seed", [4, 10])
def test_seed_gives_the_same_log_with_any_hash_seed(seed: int) -> None:
    code = f"from tests.simulation.run import simulate; print(simulate({seed}, 0.2).digest)"
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(digests) == 1
