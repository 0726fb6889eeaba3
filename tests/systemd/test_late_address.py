"""An address that comes after the sockets at a boot, as a bridge's or a private network's does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.systemd.machine import CREW, Service, run, until

ADDRESS = "10.77.0.1"
UNITS = ("smartlinkd.socket", "smartlinkd.service")


@pytest.fixture
def elsewhere(service: Service) -> Iterator[Service]:
    """It is to serve at ADDRESS, with a crew that has another port there. It is stopped, and the
    machine has no such address."""
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


def test_it_is_served_as_soon_as_it_is_there(elsewhere: Service) -> None:
    run("systemctl", "start", *UNITS)
    until("it has started", elsewhere.is_active)
    assert elsewhere.health() == {}
    told = f"server.bind: this machine has no address {ADDRESS} yet"
    log = ("journalctl", "-u", "smartlinkd", "-o", "cat", f"_PID={elsewhere.pid}")
    until("it is told", lambda: told in run(*log))
    run("ip", "address", "add", f"{ADDRESS}/32", "dev", "lo")
    elsewhere.until_ready()
    token = elsewhere.crew_token(CREW)
    assert elsewhere.ask(f"/crews/{CREW}/", token=token).text == "Healthy"
    own = replace(elsewhere, url=f"http://{ADDRESS}:9000")
    assert own.ask("/", token=token).text == "Healthy"
    assert elsewhere.restarts == 0
