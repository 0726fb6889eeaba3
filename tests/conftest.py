"""What the whole test run tells at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.faults.summary import summary

if TYPE_CHECKING:
    import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How much of the fault matrix was covered, and how much of it failed."""
    outcomes = [
        *terminalreporter.stats.get("passed", ()),
        *terminalreporter.stats.get("failed", ()),
    ]
    line = summary(outcomes)
    if line is not None:
        terminalreporter.write_line(line)
