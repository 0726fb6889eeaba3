"""Plugins and fixtures of all tests, and the summary at the end of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import HealthCheck, settings

from tests.every_step.driver import at_every_step
from tests.fakes.passed_sockets import theirs
from tests.shortage import no_thread, shortage

if TYPE_CHECKING:
    import pytest

__all__ = ["at_every_step", "no_thread", "shortage", "theirs"]  # fixtures of all tests

# The first plugin makes the folder for all temporary files. The daemon's modules need it.
pytest_plugins = [
    "tests.hygiene.folder",
    "tests.hygiene.leaks",
    "tests.hygiene.deadline",
    "tests.hygiene.nightly",
    "tests.hygiene.order",
    "tests.hygiene.reports",
]

# A slow machine is no failure.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write the option that runs the tests in the same order again."""
    seed = terminalreporter.config.getoption("randomly_seed", None)
    if seed is not None and {"failed", "error"} & terminalreporter.stats.keys():
        terminalreporter.write_line(f"the same order again: --randomly-seed={seed}")
