"""The daemon of a reload."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app.reload.played import Daemon


@pytest.fixture
def daemon(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[Daemon]:
    """A daemon. The log levels, which a reload sets, are restored after the test."""
    loggers = logging.getLogger(), logging.getLogger("smartlinkd")
    levels = [each.level for each in loggers]
    caplog.set_level(logging.INFO)
    yield Daemon(tmp_path, caplog)
    for each, level in zip(loggers, levels, strict=True):
        each.setLevel(level)
