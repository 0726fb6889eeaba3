"""A crew's own address, held by a socket unit of its own as docs/operating.md has it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.systemd.machine import ROOT, Service, run

CREW = "quick"
UNIT = "smartlinkd-research.socket"
URL = "http://127.0.0.1:9000"


def unit() -> str:
    """The one in the documents."""
    text = (ROOT / "docs/operating.md").read_text()
    _, found, rest = text.partition(f"# /etc/systemd/system/{UNIT}\n")
    assert found, "it is not in docs/operating.md any more"
    return rest.partition("```")[0].replace("crew-research", f"crew-{CREW}")


@pytest.fixture
def held(service: Service) -> Iterator[Service]:
    before = service.configuration.read_text()
    name = f'name = "{CREW}"\n'
    bind = URL.removeprefix("http://")
    service.configuration.write_text(before.replace(name, f'{name}bind = "{bind}"\n'))
    path = Path("/etc/systemd/system", UNIT)
    path.write_text(unit())
    run("systemctl", "daemon-reload")
    run("systemctl", "stop", "smartlinkd.service")
    run("systemctl", "start", UNIT)
    run("systemctl", "start", "smartlinkd.service")
    yield service
    run("systemctl", "stop", UNIT, "smartlinkd.service")
    path.unlink()
    run("systemctl", "daemon-reload")
    service.configuration.write_text(before)
    run("systemctl", "start", "smartlinkd.socket", "smartlinkd.service")


def answer(service: Service) -> str:
    bearer = {"Authorization": f"Bearer {service.crew_token(CREW)}"}
    return httpx.get(f"{URL}/", headers=bearer, timeout=30, trust_env=False).text


def test_it_is_served_and_outlives_the_daemon(held: Service) -> None:
    assert answer(held) == "Healthy"
    assert held.ask("/crews/quick/", token=held.crew_token(CREW)).text == "Healthy"
    run("systemctl", "stop", "smartlinkd.service")
    assert answer(held) == "Healthy"  # it was started for that
    said = run("journalctl", "-u", "smartlinkd", "--no-pager", "-p", "warning", "-n", "20")
    assert "has a socket for crew" not in said
    assert "which counts" not in said
