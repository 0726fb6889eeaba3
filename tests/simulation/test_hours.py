"""Twenty seeds, an hour each; `./run simulate` does more of them, and longer ones."""

from __future__ import annotations

import pytest

from tests.simulation.run import TAIL, simulate

SEEDS = range(1, 21)


@pytest.mark.parametrize("seed", SEEDS)
def test_an_hour(seed: int) -> None:
    outcome = simulate(seed, 1.0)
    assert not outcome.failures, outcome.told(TAIL)
    assert outcome.counts["conversions"] > 0
