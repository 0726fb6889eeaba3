"""A crew's own address, held by a socket unit of its own as docs/operating.md has it."""

from __future__ import annotations

import re

from tests.systemd.machine import CREW, DOCUMENT, Service, run


def test_it_is_served_and_outlives_the_daemon(crew_socket: Service) -> None:
    assert crew_socket.crew_health() == "Healthy"
    token = crew_socket.crew_token(CREW)
    assert crew_socket.ask(f"/crews/{CREW}/", token=token).text == "Healthy"
    run("systemctl", "stop", "smartlinkd.service")
    assert crew_socket.crew_health() == "Healthy"  # it was started for that
    said = run("journalctl", "-u", "smartlinkd", "--no-pager", "-p", "warning", "-n", "20")
    assert "has a socket for crew" not in said
    assert "which counts" not in said


def test_a_stop_is_one(crew_socket: Service) -> None:
    """As the document says it, which knows nothing of the crew's unit there."""
    (stop,) = re.findall(r"^sudo (systemctl stop .*?)  +# stop it$", DOCUMENT, flags=re.MULTILINE)
    crew_socket.crew_token(CREW)
    run("sh", "-euc", stop)
    assert crew_socket.crew_health() == ""
    assert not crew_socket.is_active()
    run("sh", "-euc", stop.replace("stop", "start"))
    assert crew_socket.crew_health() == "Healthy"
