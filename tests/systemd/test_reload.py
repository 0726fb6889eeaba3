"""`systemctl reload` applies a changed configuration."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from smartlinkd.logs import LogEvent
from tests.systemd.machine import Service, now, run, until

RELOADED = LogEvent.CONFIG_RELOADED.message_id
CREW = """
[[crews]]
name = "fresh"
runner = "command"
command = ["/usr/bin/python3", "/srv/crews/worker.py"]
"""


@pytest.fixture
def editing(service: Service) -> Iterator[Service]:
    """Restore the configuration after the test."""
    good = service.configuration.read_text()
    yield service
    service.configuration.write_text(good)
    service.systemctl("restart")


def test_new_crew_is_served_without_a_restart(editing: Service) -> None:
    before, since = editing.pid, now()
    running = editing.kickoff("slow", seconds=5)
    editing.configuration.write_text(editing.configuration.read_text() + CREW)
    run("systemctl", "reload", editing.name)
    until(
        "the configuration is reloaded",
        lambda: editing.journal(f"MESSAGE_ID={RELOADED}", since=since),
    )
    assert editing.execution("fresh", editing.kickoff("fresh"), wait=20)["state"] == "SUCCESS"
    assert editing.execution("slow", running, wait=20)["state"] == "SUCCESS"
    assert (editing.pid, editing.is_active()) == (before, True)
