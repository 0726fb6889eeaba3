"""Clients that disconnect leave nothing: no descriptor, follower, process or folder.

Each test compares the daemon's resources before and after. The soak does the same for hundreds of
executions.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import trio

if TYPE_CHECKING:
    from tests.e2e.conftest import Daemon
    from tests.e2e.crews.conftest import Client, Employing, Meet

TIMES = 50
AT_ONCE = 8
LONGEST_REST = 20
BETWEEN_LOOKS = 0.1
STILL_LOOKS = 4


@pytest.fixture(scope="module")
def shared_daemon(employing: Employing, meet: Meet) -> Iterator[Daemon]:
    """The module's daemon. Its first execution has already made what it keeps for workers."""

    async def first_execution(daemon: Daemon) -> None:
        crew = await meet(daemon, "trivial")
        await crew.ended(await crew.kick_off())

    until_stopped = "IFS= read -r stop <&3"
    with employing(
        {
            "trivial": {"max_running": AT_ONCE, "queue": TIMES},
            "patient": {"script": until_stopped, "max_running": AT_ONCE, "grace": 30},
        }
    ) as daemon:
        trio.run(first_execution, daemon)
        yield daemon


@asynccontextmanager
async def nothing_left(daemon: Daemon) -> AsyncIterator[None]:
    """Check that the daemon has the same resources after the block as before."""
    await daemon.login()
    before = await stable_resources(daemon)
    yield
    found = {}

    async def is_left() -> bool:
        nonlocal found
        found = await resources(daemon)
        return found == before

    with suppress(AssertionError):  # the next line shows the difference
        await daemon.until("nothing more than before", is_left)
    assert found == before


async def stable_resources(daemon: Daemon) -> dict[str, Any]:
    """Return the daemon's resources once they stay the same: a closed connection or a worker's
    socket may exist for another moment."""
    looks: list[dict[str, Any]] = []
    with trio.fail_after(LONGEST_REST):
        while len(looks) < STILL_LOOKS or any(look != looks[-1] for look in looks[-STILL_LOOKS:]):
            await trio.sleep(BETWEEN_LOOKS)
            looks.append(await resources(daemon))
    return looks[-1]


async def resources(daemon: Daemon) -> dict[str, Any]:
    descriptors = daemon.descriptors()  # before the requests below, whose connections would count
    parts = ("smartlinkd_execution", "smartlinkd_part_")
    happened = ("smartlinkd_executions_ended", "smartlinkd_execution_wait")
    told = {
        name: value
        for name, value in (await daemon.metrics()).items()
        if name.startswith(parts) and not name.startswith(happened)
    }
    return {
        "descriptors": descriptors,
        "processes": daemon.processes(),
        "folders": daemon.profiles(),
        "conversion": (await daemon.status())["conversion"],
        **told,
    }


@pytest.mark.parametrize("path", ["/status/{}?wait=60", "/events/{}"])
async def test_clients_that_leave_while_they_follow_leave_nothing(
    shared_daemon: Daemon, meet: Meet, path: str
) -> None:
    crew = await meet(shared_daemon, "patient")
    kickoff_id = await crew.kick_off()
    await shared_daemon.until("it works", lambda: crew.works(kickoff_id))
    async with nothing_left(shared_daemon):
        clients = [ask(crew, "GET", path.format(kickoff_id)) for _ in range(TIMES)]
        await shared_daemon.until("all follow", lambda: follow(shared_daemon, TIMES))
        for nth, client in enumerate(clients):
            disconnect(client, by_reset=nth % 2 == 0)
    await crew.stop(kickoff_id)


async def test_clients_that_leave_during_a_kickoff_leave_nothing(
    shared_daemon: Daemon, meet: Meet
) -> None:
    crew = await meet(shared_daemon, "trivial")
    before = await crew.ids()
    async with nothing_left(shared_daemon):
        for nth in range(TIMES):
            client = ask(crew, "POST", "/kickoff", b"{}")
            for _ in range(nth % 6):  # the kickoff gets this much time
                await shared_daemon.ask("GET", "/livez")
            disconnect(client, by_reset=nth % 2 == 0)
    begun = [each for each in await crew.ids() if each not in before]
    assert begun
    assert {(await crew.status(each))["status"] for each in begun} <= {"completed"}


async def test_stops_whose_clients_leave_at_once_are_carried_out(
    shared_daemon: Daemon, meet: Meet
) -> None:
    """The clients close their connections: a reset may lose what was sent before."""
    crew = await meet(shared_daemon, "patient")
    async with nothing_left(shared_daemon):
        ids = [await crew.kick_off() for _ in range(TIMES)]
        for each in ids:
            ask(crew, "POST", f"/stop/{each}").close()
        ends = [await crew.ended(each) for each in ids]
    assert {end["status"] for end in ends} == {"stopped"}


async def follow(daemon: Daemon, number: int) -> bool:
    return (await daemon.metrics())["smartlinkd_execution_followers"] == number


def ask(client: Client, method: str, path: str, body: bytes = b"") -> socket.socket:
    """Send a request on a new connection, and return the connection."""
    url = httpx.URL(client.daemon.url)
    connection = socket.create_connection((url.host, url.port or 0))
    connection.sendall(
        f"{method} /crews/{client.crew}{path} HTTP/1.1\r\nHost: {url.host}\r\n"
        f"Authorization: Bearer {client.token}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n".encode()
        + body
    )
    return connection


def disconnect(connection: socket.socket, *, by_reset: bool) -> None:
    if by_reset:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
