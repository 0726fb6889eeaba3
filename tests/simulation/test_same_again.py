"""Two runs of a seed have the same log."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

HOURS = 0.2


@pytest.mark.parametrize("seed", [4, 10])
def test_seed_gives_the_same_log_with_any_hash_seed(seed: int) -> None:
    assert len({_digest_in_new_process(seed, hash_seed) for hash_seed in ("1", "2")}) == 1


def _digest_in_new_process(seed: int, hash_seed: str) -> str:
    """Return the digest of a run in a new process."""
    code = f"from tests.simulation.run import simulate; print(simulate({seed}, {HOURS}).digest)"
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()
