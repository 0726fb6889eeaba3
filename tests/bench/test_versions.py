"""What is told of the machine, beside what was measured on it."""

from __future__ import annotations

import os

import pytest

from bench import versions


def test_the_load_is_that_of_the_minute_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "unsandboxed", lambda: True)
    monkeypatch.setattr(os, "getloadavg", lambda: (0.25, 3.0, 7.0))
    found = versions.found()
    assert (found["load before"], found["Chromium's sandbox"]) == ("0.2", "off")
