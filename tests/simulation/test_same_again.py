"""A seed is the same each time, and no other one."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.simulation.run import simulate

HOURS = 0.4


@pytest.mark.parametrize("seed", [4, 10])
def test_a_seed_is_the_same_again(seed: int) -> None:
    assert simulate(seed, HOURS).digest == simulate(seed, HOURS).digest


def test_another_seed_is_another_one() -> None:
    assert len({simulate(seed, HOURS).digest for seed in range(1, 4)}) == 3


def test_a_seed_is_the_same_in_a_process_that_hashes_differently() -> None:
    digests = {_digest_elsewhere(hash_seed) for hash_seed in ("1", "2")}
    assert digests == {simulate(4, HOURS).digest}


def _digest_elsewhere(hash_seed: str) -> str:
    code = f"from tests.simulation.run import simulate; print(simulate(4, {HOURS}).digest)"
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()
