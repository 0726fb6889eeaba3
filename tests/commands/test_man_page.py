"""The man page in docs/ fits the current commands."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from tests.man_page import PAGE, man_page


@pytest.mark.skipif(
    sys.version_info[:2] != (3, 11), reason="each Python's argparse breaks lines in its own way"
)
def test_man_page_is_of_these_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SOURCE_DATE_EPOCH", "COLUMNS"):
        monkeypatch.setenv(name, "")
    assert PAGE.read_text(encoding="utf-8") == man_page(), "run ./run man, and commit the page"


@pytest.mark.skipif(shutil.which("man") is None, reason="there is no man here")
def test_man_page_renders_without_warnings() -> None:
    command = ["man", "--warnings", "--local-file", str(PAGE)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert "smartlinkd convert" in shown.stdout
    assert shown.stderr == ""
