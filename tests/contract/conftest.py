"""The contract's rows, over HTTP, on a real daemon that works with the sandbox portal."""

from __future__ import annotations

from tests.e2e.conftest import Daemon, Portal, Running, daemon, linking, portal, running

__all__ = ["Daemon", "Portal", "Running", "daemon", "linking", "portal", "running"]
