"""The contract's rows, over HTTP, on a real daemon that works with the sandbox portal."""

from __future__ import annotations

from tests.e2e.conftest import (
    Account,
    Daemon,
    Portal,
    Running,
    RunProgram,
    daemon,
    fetching,
    impatient,
    linking,
    portal,
    run_program,
    running,
    slow_submits,
)

__all__ = [
    "Account",
    "Daemon",
    "Portal",
    "RunProgram",
    "Running",
    "daemon",
    "fetching",
    "impatient",
    "linking",
    "portal",
    "run_program",
    "running",
    "slow_submits",
]
