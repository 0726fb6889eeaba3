"""An actor that crashes again and again, and a daemon that cannot start: systemd restarts them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.systemd.machine import Service, run, until

REASON = "made to crash by a test"
MODULES = Path("/srv/crashing")
FLAG = MODULES / "now"
# Python imports sitecustomize at its start. This one makes the vault crash soon after each start
# while FLAG exists.
PATCH = f"""
import builtins, os, sys

if sys.argv[0].endswith("/smartlinkd"):
    import trio
    from smartlinkd.vault.actor import Vault

    run = Vault.run

    async def crashing(self, *arguments, **named):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(crash)
            await run(self, *arguments, **named)

    async def crash():
        while not os.path.exists("{FLAG}"):
            await trio.sleep(0.05)
        raise RuntimeError("{REASON}")

    Vault.run = crashing
"""


@pytest.fixture
def crashing(service: Service) -> Iterator[Service]:
    MODULES.mkdir(exist_ok=True)
    (MODULES / "sitecustomize.py").write_text(PATCH)
    with service.drop_in(f"[Service]\nEnvironment=PYTHONPATH={MODULES}\n"):
        service.systemctl("restart")
        service.store_cookie()
        yield service
    FLAG.unlink(missing_ok=True)
    service.systemctl("restart")


def test_repeated_crashes_restart_the_unit_with_a_reason(crashing: Service) -> None:
    cookie = crashing.stored_cookie()
    before, restarts, began = crashing.pid, crashing.restarts, time.monotonic()
    FLAG.touch()
    until("the process ends", lambda: crashing.pid != before)
    print(f"it ended {time.monotonic() - began:.1f} s after the first crash")
    output = status()
    assert REASON in output
    assert "vault" in output
    FLAG.unlink()
    crashing.wait_for_restart(before)
    assert crashing.restarts == restarts + 1
    assert crashing.stored_cookie() == cookie
    output = run("journalctl", "-u", "smartlinkd", "--no-pager", "-n", "60")
    assert "Scheduled restart job, restart counter is at" in output


def test_invalid_configuration_is_retried_until_it_is_corrected(service: Service) -> None:
    good = service.configuration.read_text()
    restarts = service.restarts
    service.configuration.write_text("[auth\n")
    try:
        before = time.monotonic()
        run("systemctl", "restart", "smartlinkd", check=False)
        until("three more starts", lambda: service.restarts >= restarts + 3)
        assert time.monotonic() - before > 3 * 1.9  # RestartSec=2
        why = f'Status: "Ended: {service.configuration}: is not TOML'
        until("the status has the reason", lambda: why in status())
    finally:
        service.configuration.write_text(good)
    until("the service has started by itself", service.is_active)


def status() -> str:
    """Return the output of `systemctl status`."""
    return run("systemctl", "status", "--no-pager", "--lines=40", "smartlinkd", check=False)
