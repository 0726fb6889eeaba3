"""What a test printed and logged travels to the main process in UTF-8, whatever it was. A part of
pytest.

Half a character (a lone surrogate), which some tests log on purpose, has no UTF-8: xdist's worker
would end with it, and with the worker the whole run.
"""

from __future__ import annotations

from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    report.sections = [
        (name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections
    ]
    return report
