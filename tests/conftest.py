"""What the whole test run tells at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.faults.summary import summaries

if TYPE_CHECKING:
    import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How much of the matrices was covered, and how much of it failed."""
    outcomes = [
        *terminalreporter.stats.get("passed", ()),
        *terminalreporter.stats.get("failed", ()),
    ]
    for line in summaries(outcomes):
        terminalreporter.write_line(line)
