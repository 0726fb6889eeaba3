"""Chromium as the kernel sees it: in its own sandbox, as an unprivileged user, whichever it is."""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING

import pytest

from smartlinkd.browser.cdp import connect
from smartlinkd.browser.chromium import PORT_FILE, sandbox_state

if TYPE_CHECKING:
    from tests.e2e.conftest import Daemon

pytestmark = pytest.mark.chromium


async def test_chromium_runs_in_its_sandbox(any_daemon: Daemon) -> None:
    (profile,) = any_daemon.profiles()
    port, path = (any_daemon.program.folder / profile / PORT_FILE).read_text().splitlines()
    async with connect(f"ws://127.0.0.1:{port}{path}") as connection:
        assert (await sandbox_state(connection)).is_on


def test_chromium_runs_as_nobody(any_daemon: Daemon) -> None:
    own = os.geteuid()
    assert any_daemon.users() == {own or pwd.getpwnam("nobody").pw_uid}
