"""The contract's rows, over HTTP, on a real daemon that works with the sandbox portal."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

from tests.e2e.conftest import (
    Account,
    Daemon,
    Portal,
    Running,
    RunProgram,
    daemon,
    linking,
    portal,
    run_program,
    running,
    shared_open_folder,
    slow_submits,
)

__all__ = [
    "Account",
    "Daemon",
    "Portal",
    "RunProgram",
    "Running",
    "daemon",
    "linking",
    "portal",
    "run_program",
    "running",
    "shared_open_folder",
    "slow_submits",
]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Make a skipped test fail for root, who can run all: no promise may go untested."""
    report = yield
    if report.skipped and os.geteuid() == 0:
        text = f"a test of the contract must not be skipped: {report.longreprtext}"
        report.outcome, report.longrepr = "failed", text
    return report
