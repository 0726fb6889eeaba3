"""Fixtures for scenarios that are struck at every step, on a mock clock."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest
from trio.testing import MockClock

from smartlinkd.browser.limits import BrowserLimits
from tests.every_step.driver import AtEveryStep
from tests.every_step.strike import Strike
from tests.every_step.world import Crew, StrikeWorld, World, running_world
from tests.faults.stage import BROWSER_LIMITS

HERE = Path(__file__).parent
LONGEST = 1200.0  # seconds


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mark = pytest.mark.deadline(LONGEST, reason="thousands of strikes, when all steps are struck")
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(mark)


@pytest.fixture
def strike_world(at_every_step: AtEveryStep, tmp_path: Path) -> StrikeWorld:
    """Strike one running daemon with these crews at every step of a scenario."""

    def strike(
        scenario: Callable[[Strike, World], Awaitable[None]],
        *crews: Crew,
        stride: int = 1,
        seeds: int = 1,
        browser_limits: BrowserLimits = BROWSER_LIMITS,
    ) -> int:
        clock = MockClock(autojump_threshold=0)
        world = partial(running_world, tmp_path, *crews, browser_limits=browser_limits)
        return at_every_step.within(world, scenario, stride=stride, seeds=seeds, clock=clock)

    return strike
