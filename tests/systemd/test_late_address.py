"""An address that the machine gets after the boot, as a bridge's or a private network's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.systemd.machine import CREW, Service, run, until

ADDRESS = "10.77.0.1"
UNITS = ("smartlinkd.socket", "smartlinkd.service")


@pytest.fixture
def without_address(service: Service) -> Iterator[Service]:
    """Stop the service, and configure ADDRESS for it and for a crew. The machine has no ADDRESS."""
    before = service.configuration.read_text()
    text = before.replace('bind = "127.0.0.1:8787"\n', f'bind = "{ADDRESS}:8787"\n')
    name = f'name = "{CREW}"\n'
    text = text.replace(name, f'{name}bind = "{ADDRESS}:9000"\n')
    assert text.count(ADDRESS) == 2
    drop_in = Path("/etc/systemd/system/smartlinkd.socket.d/late.conf")
    drop_in.parent.mkdir(exist_ok=True)
    run("systemctl", "stop", *UNITS)
    service.configuration.write_text(text)
    drop_in.write_text(f"[Socket]\nListenStream=\nListenStream={ADDRESS}:8787\n")
    run("systemctl", "daemon-reload")
    yield replace(service, url=f"http://{ADDRESS}:8787")
    run("systemctl", "stop", *UNITS)
    run("ip", "address", "del", f"{ADDRESS}/32", "dev", "lo", check=False)
    drop_in.unlink()
    service.configuration.write_text(before)
    run("systemctl", "daemon-reload")
    run("systemctl", "start", *UNITS)


def test_address_is_served_once_the_machine_has_it(without_address: Service) -> None:
    run("systemctl", "start", *UNITS)
    until("the service has started", without_address.is_active)
    assert without_address.health() == {}
    message = f"server.bind: this machine has no address {ADDRESS} yet"
    log = ("journalctl", "-u", "smartlinkd", "-o", "cat", f"_PID={without_address.pid}")
    until("the missing address is logged", lambda: message in run(*log))
    run("ip", "address", "add", f"{ADDRESS}/32", "dev", "lo")
    without_address.wait_until_ready()
    token = without_address.crew_token(CREW)
    assert without_address.ask(f"/crews/{CREW}/", token=token).text == "Healthy"
    own = replace(without_address, url=f"http://{ADDRESS}:9000")
    assert own.ask("/", token=token).text == "Healthy"
    assert without_address.restarts == 0
