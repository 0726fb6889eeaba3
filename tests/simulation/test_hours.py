"""Simulate an hour of 20 seeds. `./run simulate` simulates more and longer ones."""

from __future__ import annotations

import pytest

from tests.simulation.run import TAIL, simulate

SEEDS = range(1, 21)


@pytest.mark.parametrize("seed", SEEDS)
def test_simulated_hour_breaks_no_promise(seed: int) -> None:
    outcome = simulate(seed, 1.0)
    assert not outcome.failures, outcome.description(TAIL)
    assert outcome.counts["conversions"] > 0
