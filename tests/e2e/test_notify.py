"""The owner is notified of a missing cookie, and of its return."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.conftest import Portal, Running

pytestmark = pytest.mark.chromium


async def test_owner_is_notified_of_a_missing_cookie_and_its_return(
    running: Running, portal: Portal, tmp_path: Path
) -> None:
    written = tmp_path / "told"
    with running(notify={"command": ["/usr/bin/tee", "-a", str(written)]}) as daemon:
        for _ in range(2):
            answer = await daemon.convert(portal.link(portal.item()), account=None)
            assert answer.status_code == 400

        async def is_notified() -> bool:
            return written.exists() and written.read_text().endswith("\n")

        await daemon.until("told", is_notified)
        await daemon.sync(portal.account())
    # The second notice is not delayed, because the daemon has ended.
    told_of = [json.loads(line) for line in written.read_text().splitlines()]
    assert [(body["event"], body["state"]) for body in told_of] == [
        ("cookie_missing", "missing"),
        ("cookie_back", "stored"),
    ]
