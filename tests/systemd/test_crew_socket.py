"""A crew's own address with its own socket unit, as in docs/operating.md."""

from __future__ import annotations

import re

from tests.systemd.machine import CREW, DOCUMENT, Service, run


def test_crew_address_starts_a_stopped_daemon(crew_socket: Service) -> None:
    assert crew_socket.crew_health() == "Healthy"
    token = crew_socket.crew_token(CREW)
    assert crew_socket.ask(f"/crews/{CREW}/", token=token).text == "Healthy"
    run("systemctl", "stop", "smartlinkd.service")
    assert crew_socket.crew_health() == "Healthy"  # the request starts the daemon
    output = run("journalctl", "-u", "smartlinkd", "--no-pager", "-p", "warning", "-n", "20")
    assert "has a socket for crew" not in output
    assert "which counts" not in output


def test_stop_closes_the_crew_address(crew_socket: Service) -> None:
    """The documented command for a stop does not name the crew's unit."""
    (stop,) = re.findall(r"^sudo (systemctl stop .*?)  +# stop it$", DOCUMENT, flags=re.MULTILINE)
    crew_socket.crew_token(CREW)
    run("sh", "-euc", stop)
    assert crew_socket.crew_health() == ""
    assert not crew_socket.is_active()
    run("sh", "-euc", stop.replace("stop", "start"))
    assert crew_socket.crew_health() == "Healthy"
