"""`systemctl reload`: what of a changed configuration the service takes up."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from smartlinkd.logs import LogEvent
from tests.systemd.machine import Service, now, run, until

RELOADED, REFUSED = LogEvent.CONFIG_RELOADED.message_id, LogEvent.CONFIG_REFUSED.message_id
CREW = """
[[crews]]
name = "fresh"
runner = "command"
command = ["/usr/bin/python3", "/srv/crews/worker.py"]
"""


@pytest.fixture
def editing(service: Service) -> Iterator[Service]:
    """Its configuration is as it was afterwards."""
    good = service.configuration.read_text()
    yield service
    service.configuration.write_text(good)
    service.systemctl("restart")


def test_a_new_crew_is_served_without_a_restart(editing: Service) -> None:
    before, since = editing.pid, now()
    running = editing.kickoff("slow", seconds=5)
    editing.configuration.write_text(editing.configuration.read_text() + CREW)
    run("systemctl", "reload", editing.name)
    until("it is taken up", lambda: editing.journal(f"MESSAGE_ID={RELOADED}", since=since))
    assert editing.execution("fresh", editing.kickoff("fresh"), wait=20)["state"] == "SUCCESS"
    assert editing.execution("slow", running, wait=20)["state"] == "SUCCESS"
    assert (editing.pid, editing.is_active()) == (before, True)


def test_a_broken_one_is_refused_and_the_old_one_stays(editing: Service) -> None:
    before, since, cookie = editing.pid, now(), editing.stored_cookie()
    text = editing.configuration.read_text()
    editing.configuration.write_text(text.replace("[server]\n", "[server]\nbnid = 1\n"))
    run("systemctl", "reload", editing.name, check=False)
    until("it is refused", lambda: editing.journal(f"MESSAGE_ID={REFUSED}", since=since))
    assert "bnid" in run("journalctl", "-u", editing.name, f"--since={since}")
    assert (editing.pid, editing.stored_cookie()) == (before, cookie)
    assert editing.execution("quick", editing.kickoff("quick"), wait=20)["state"] == "SUCCESS"
