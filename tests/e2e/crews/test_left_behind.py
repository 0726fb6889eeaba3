"""Clients that disconnect at once, over real connections.

The cells `client_gone` of the fault matrix check that such clients leave nothing in the daemon.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import httpx

if TYPE_CHECKING:
    from tests.e2e.crews.conftest import Client, Employing, Meet

TIMES = 50


async def test_stops_whose_clients_leave_at_once_are_carried_out(
    employing: Employing, meet: Meet
) -> None:
    """The clients close their connections: a reset may lose what was sent before."""
    until_stopped = "IFS= read -r stop <&3"
    with employing({"patient": {"script": until_stopped, "max_running": 8, "grace": 30}}) as daemon:
        crew = await meet(daemon, "patient")
        ids = [await crew.kick_off() for _ in range(TIMES)]
        for each in ids:
            post(crew, f"/stop/{each}").close()
        ends = [await crew.ended(each) for each in ids]
    assert {end["status"] for end in ends} == {"stopped"}


def post(client: Client, path: str) -> socket.socket:
    """Send a request without a body on a new connection, and return the connection."""
    url = httpx.URL(client.daemon.url)
    connection = socket.create_connection((url.host, url.port or 0))
    connection.sendall(
        f"POST /crews/{client.crew}{path} HTTP/1.1\r\nHost: {url.host}\r\n"
        f"Authorization: Bearer {client.token}\r\nContent-Type: application/json\r\n"
        "Content-Length: 0\r\n\r\n".encode()
    )
    return connection
