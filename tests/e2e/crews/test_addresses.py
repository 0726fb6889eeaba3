"""A crew whose address is taken, or that cannot run, does not affect the other crews."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.e2e.conftest import Daemon
    from tests.e2e.crews.conftest import Client, Employing, Meet


@dataclass
class CrewPorts:
    """A daemon, the free port of one crew, and the taken port of another."""

    daemon: Daemon
    own: int
    taken: int


@pytest.fixture(scope="module")
def crew_ports(employing: Employing) -> Iterator[CrewPorts]:
    with socket.create_server(("127.0.0.1", 0)) as foreign:
        taken = foreign.getsockname()[1]
        with socket.create_server(("127.0.0.1", 0)) as free:
            own = free.getsockname()[1]
        crews: dict[str, dict[str, Any]] = {
            "own-port": {"bind": f"127.0.0.1:{own}", "default": True},
            "taken-port": {"bind": f"127.0.0.1:{taken}"},
            "broken": {"command": ["/nowhere/at-all"], "users": ["ann"]},
            "shared-port": {},
        }
        with employing(crews) as daemon:
            yield CrewPorts(daemon, own, taken)


async def check_runs(client: Client) -> None:
    assert (await client.ended(await client.kick_off()))["status"] == "completed"


async def test_crew_with_a_taken_address_runs_at_its_path(
    crew_ports: CrewPorts, meet: Meet
) -> None:
    await check_runs(await meet(crew_ports.daemon, "taken-port"))
    (told,) = (
        line for line in log_of(crew_ports.daemon) if "crew taken-port: bind" in line["message"]
    )
    assert told["level"] == "error"
    assert str(crew_ports.taken) in told["message"]
    assert [crew["baseAddress"] for crew in (await crew_ports.daemon.status())["crews"]] == [
        f"http://127.0.0.1:{crew_ports.own}",
        *(
            f"{crew_ports.daemon.url}/crews/{name}"
            for name in ("taken-port", "shared-port", "broken")
        ),
    ]


async def test_broken_crew_is_503_and_the_others_run(crew_ports: CrewPorts, meet: Meet) -> None:
    broken = await meet(crew_ports.daemon, "broken", user="ann")
    answer = await broken.ask("POST", "/kickoff", {"inputs": {}})
    assert (answer.status_code, answer.json()["error"]) == (503, "Service Unavailable")
    assert "/nowhere" not in answer.text
    assert await broken.ids() == []
    (told,) = (line for line in log_of(crew_ports.daemon) if "cannot run" in line["message"])
    assert "/nowhere/at-all" in told["message"]
    await check_runs(await meet(crew_ports.daemon, "shared-port"))


def log_of(daemon: Daemon) -> list[dict[str, Any]]:
    return [json.loads(line) for line in daemon.program.log.read_text().splitlines()]
