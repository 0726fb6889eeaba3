"""The owner is told of a cookie that is missing, and of its return."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.conftest import Portal, Running

pytestmark = pytest.mark.chromium

PROGRAM = "import os, sys; open(sys.argv[1], 'a').write(sys.stdin.read())"


async def test_the_owner_is_told_when_links_are_wanted_and_no_cookie_is_stored(
    running: Running, portal: Portal, tmp_path: Path
) -> None:
    written = tmp_path / "told"
    command = [sys.executable, "-I", "-S", "-c", PROGRAM, str(written)]
    with running(notify={"command": command}) as daemon:
        for _ in range(2):
            answer = await daemon.convert(portal.link(portal.item()), account=None)
            assert answer.status_code == 400

        async def told() -> bool:
            return lines(written) != []

        await daemon.until("told", told)
        await daemon.sync(portal.account())
    # The second one so soon because the daemon has ended.
    told_of = [(body["event"], body["state"]) for body in map(json.loads, lines(written))]
    assert told_of == [("cookie_missing", "missing"), ("cookie_back", "stored")]


def lines(written: Path) -> list[str]:
    """The whole ones."""
    return written.read_text().split("\n")[:-1] if written.exists() else []
