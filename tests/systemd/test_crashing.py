"""An actor that crashes again and again, and a daemon that cannot start: systemd restarts them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from smartlinkd.logs import LogEvent
from tests.systemd.machine import Service, now, run, until

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
    before, restarts = crashing.pid, crashing.restarts
    FLAG.touch()
    until("the process ends", lambda: crashing.pid != before)
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
    good, since = service.configuration.read_text(), now()
    restarts = service.restarts
    service.configuration.write_text("[auth\n")
    try:
        before = time.monotonic()
        run("systemctl", "restart", "smartlinkd", check=False)
        until("three more starts", lambda: service.restarts >= restarts + 3)
        assert time.monotonic() - before > 3 * 1.9  # RestartSec=2
        why = f'Status: "Ended: {service.configuration}: is not TOML'
        until("the status has the reason", lambda: why in status())
        event = f"MESSAGE_ID={LogEvent.CONFIG_REFUSED.message_id}"
        records = until("the error is logged", lambda: service.journal(event, since=since))
        assert (records[0]["_TRANSPORT"], records[0]["PRIORITY"]) == ("journal", "2")
        assert records[0]["MESSAGE"].startswith(f"{service.configuration}: is not TOML")
    finally:
        service.configuration.write_text(good)
    until("the service has started by itself", service.is_active)


def status() -> str:
    """Return the output of `systemctl status`."""
    return run("systemctl", "status", "--no-pager", "--lines=40", "smartlinkd", check=False)
