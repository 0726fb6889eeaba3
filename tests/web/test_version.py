"""The extension and the program are released together."""

from __future__ import annotations

import json
from pathlib import Path

from smartlinkd import __version__

MANIFEST = Path(__file__).parents[2] / "extension" / "manifest.json"


def test_extension_has_the_version_of_the_program() -> None:
    assert json.loads(MANIFEST.read_text())["version"] == __version__
