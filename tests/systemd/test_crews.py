"""Crews in the service: what they can use, and what `check-config` says of what it cannot see."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.systemd.machine import PORTAL, Service, run

HIDDEN = """
[[crews]]
name = "{name}"
runner = "crewai"
project = "{folder}"
python = "/usr/bin/python3"
"""


def test_the_example_crew_converts_links(service: Service) -> None:
    link = f"http://127.0.0.1:{PORTAL + 1}/product/88201679/23456789012"
    begun = service.kickoff("deal-post", links=[link])
    ended = service.execution("deal-post", begun, wait=40)
    assert ended["state"] == "SUCCESS", ended["error"]
    assert f"http://127.0.0.1:{PORTAL + 2}/" in ended["result"]


@pytest.fixture
def hidden(service: Service) -> Iterator[dict[str, Path]]:
    """Projects that every user may read by their modes, and one that nobody may."""
    folders = {
        "at-home": Path("/home/owner/crew"),
        "at-roots": Path("/root/crew"),
        "closed": Path("/srv/closed"),
    }
    good = service.configuration.read_text()
    crews = "".join(HIDDEN.format(name=name, folder=path) for name, path in folders.items())
    for folder in folders.values():
        folder.mkdir(parents=True, mode=0o755)
    folders["closed"].chmod(0o700)
    mode = Path("/root").stat().st_mode
    Path("/root").chmod(0o755)
    service.configuration.write_text(good + crews)
    yield folders
    service.configuration.write_text(good)
    Path("/root").chmod(mode)
    for folder in folders.values():
        folder.rmdir()
    service.systemctl("restart")


def told(text: str) -> dict[str, str]:
    """What is said of the project of each crew."""
    found = {}
    for line in text.splitlines():
        if 'crew "' in line and ": project: " in line:
            crew, _, says = line.partition('crew "')[2].partition('": project: ')
            found[crew] = says
    return found


def test_a_project_that_the_services_user_cannot_read_is_reported(
    service: Service, hidden: dict[str, Path]
) -> None:
    """By `check-config` before, and in the same words by the daemon itself."""
    checked = run("smartlinkd", "check-config", str(service.configuration), check=False)
    says = told(checked)
    for name, above in (("at-home", "/home"), ("at-roots", "/root")):
        assert says[name] == (
            f"names a folder that is below {above}, of which the service sees nothing; move it to "
            "/srv, or to another place that every service sees"
        )
    # By number, where the name service does not know systemd's users (Debian's libnss-systemd).
    assert re.match(r"names a folder that the user (smartlinkd|\d+) may not read; ", says["closed"])
    assert "starts, without 3 of its" in checked
    service.systemctl("restart")
    logged = told(run("journalctl", "-u", "smartlinkd", "-o", "cat", f"_PID={service.pid}"))
    assert logged == says
