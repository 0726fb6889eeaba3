"""A seed is the same each time."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

HOURS = 0.2


@pytest.mark.parametrize("seed", [4, 10])
def test_a_seed_is_the_same_in_processes_that_hash_differently(seed: int) -> None:
    assert len({_digest_elsewhere(seed, hash_seed) for hash_seed in ("1", "2")}) == 1


def _digest_elsewhere(seed: int, hash_seed: str) -> str:
    """In a process of its own, as when a seed is played again."""
    code = f"from tests.simulation.run import simulate; print(simulate({seed}, {HOURS}).digest)"
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()
