"""A daemon with many connections stays fair: no client takes all connections or much memory.

A token's followers, waits and unfinished bodies are bounded (429), a quarter of the connections
stays free for others (503), and followers that never read take at most 64 MiB (contract section 2).
"""

from __future__ import annotations

import json
import re
import resource
import select
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import trio

from tests.e2e.crews.conftest import employing, meet

if TYPE_CHECKING:
    from tests.e2e.conftest import Daemon
    from tests.e2e.crews.conftest import Client, Employing, Meet

__all__ = ["employing", "meet"]

pytestmark = pytest.mark.chromium

STREAMS = 512
BODIES = 600
SHARE = 128
"""Connections that one token may hold."""
ANSWERED_WITHIN = 5.0
"""Seconds. The contract promises one second on a machine that runs no tests."""
MEMORY = 64 * 1024
"""KiB by which the daemon's memory may grow."""
LARGE_EVENTS = 15
LARGE = 1_000_000
"""Bytes of an event."""
LOADED = 8.0
"""Seconds in which the daemon has read as many events as followers can hold."""

WAITING = "IFS= read -r stop <&3"
TELLING = f"""\
large=$(head -c {LARGE} /dev/zero | tr '\\0' x)
for number in $(seq {LARGE_EVENTS}); do
  task="\\"task_id\\": \\"$number\\""
  say "{{\\"type\\": \\"task_started\\", $task}}"
  say "{{\\"type\\": \\"task_completed\\", $task, \\"output\\": \\"$large\\"}}"
done
"""
CREWS: dict[str, dict[str, Any]] = {
    "waiting": {"script": WAITING},
    "telling": {
        "script": TELLING
        + """say '{"type": "task_completed", "task_id": "only", "output": ""}'
say '{"type": "result", "output": ""}'
""",
    },
}


@pytest.fixture(scope="module", autouse=True)
def many_descriptors() -> Iterator[None]:
    """Let this process open as many connections as the tests need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture(scope="module")
def house(employing: Employing) -> Iterator[Daemon]:
    with employing(CREWS) as daemon:
        yield daemon


@pytest.fixture
def connections() -> Iterator[ExitStack]:
    """A stack that closes the test's connections."""
    with ExitStack() as opened:
        yield opened


def connect(daemon: Daemon, request: str, *, receives: int = 0) -> socket.socket:
    """Send a request on a new connection. `receives` is the receive buffer's size in bytes."""
    url = httpx.URL(daemon.url)
    opened = socket.socket()
    if receives:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receives)
    opened.connect((url.host, url.port))
    opened.sendall(request.encode())
    return opened


def get(path: str, token: str) -> str:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"


def half_sent(path: str, token: str = "") -> str:
    """Return a request whose body never ends."""
    authorization = f"Authorization: Bearer {token}\r\n" if token else ""
    return (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"{authorization}Content-Length: 100\r\n\r\n{{"
    )


def answers(connections: list[socket.socket]) -> tuple[Counter[int], bytes]:
    """Count the statuses so far, 0 for no answer yet. Return the last refusal, too."""
    statuses: Counter[int] = Counter()
    refusal = b""
    poll = select.poll()
    for each in connections:
        poll.register(each, select.POLLIN)
    readable = {descriptor for descriptor, _ in poll.poll(0)}
    for each in connections:
        said = each.recv(65536, socket.MSG_PEEK) if each.fileno() in readable else b""
        status = int(said.split()[1]) if said else 0
        statuses[status] += 1
        refusal = said if status >= 400 else refusal
    return statuses, refusal


async def settled(
    daemon: Daemon, connections: list[socket.socket], met: Callable[[Counter[int]], bool]
) -> bytes:
    """Wait until the statuses are as expected. Return one of the refusals."""
    seen: Counter[int] = Counter()
    refusal = b""

    async def look() -> bool:
        nonlocal seen, refusal
        seen, refusal = answers(connections)
        return met(seen)

    try:
        await daemon.until("the expected statuses", look)
    except AssertionError:
        raise AssertionError(f"these statuses came: {dict(seen)}") from None
    return refusal


def check_refusal(raw: bytes, status: int, *, is_crews: bool) -> None:
    """Check that a refusal has the shape of its path, and a Retry-After."""
    head, _, body = raw.partition(b"\r\n\r\n")
    assert int(head.split()[1]) == status
    assert re.search(rb"\r\nretry-after: [1-9]", head)
    failure = json.loads(body)
    if is_crews:
        assert failure["error"] in ("Too Many Requests", "Service Unavailable")
        assert failure["message"]
    else:
        assert failure["ok"] is False
        assert failure["error"]


async def check_served(daemon: Daemon) -> None:
    """Check that others are served: health, and a login whose body comes after its head."""
    for path in ("/livez", "/readyz", "/api/health"):
        with trio.fail_after(ANSWERED_WITHIN):
            assert (await daemon.ask("GET", path)).status_code == 200, path
    with trio.fail_after(ANSWERED_WITHIN):
        login = await daemon.ask("POST", "/api/auth/login", {"password": daemon.password})
    assert login.status_code == 200, login.text


@pytest.fixture
async def waiting(house: Daemon, meet: Meet) -> Client:
    return await meet(house, "waiting")


async def test_event_streams_of_one_token_lock_nobody_out(
    house: Daemon, waiting: Client, connections: ExitStack
) -> None:
    kickoff_id = await waiting.kick_off()
    request = get(f"/crews/waiting/events/{kickoff_id}", waiting.token)
    opened = [connections.enter_context(connect(house, request)) for _ in range(STREAMS)]
    await check_served(house)
    refusal = await settled(house, opened, lambda seen: seen == {200: SHARE, 429: STREAMS - SHARE})
    check_refusal(refusal, 429, is_crews=True)
    await check_served(house)
    connections.close()
    await waiting.stop(kickoff_id)


async def test_waits_of_one_token_lock_nobody_out(
    house: Daemon, waiting: Client, connections: ExitStack
) -> None:
    kickoff_id = await waiting.kick_off()
    await house.until("it runs", lambda: is_running(waiting, kickoff_id))
    request = get(f"/crews/waiting/status/{kickoff_id}?wait=60", waiting.token)
    opened = [connections.enter_context(connect(house, request)) for _ in range(STREAMS)]
    await check_served(house)
    refusal = await settled(house, opened, lambda seen: seen == {0: SHARE, 429: STREAMS - SHARE})
    check_refusal(refusal, 429, is_crews=True)
    await check_served(house)
    assert (await waiting.status(kickoff_id))["state"] == "RUNNING"  # this request does not wait
    connections.close()
    await waiting.stop(kickoff_id)


async def is_running(client: Client, kickoff_id: str) -> bool:
    return bool((await client.status(kickoff_id))["state"] == "RUNNING")


@pytest.mark.parametrize("path", ["/api/convert", "/crews/waiting/kickoff"])
async def test_half_sent_bodies_of_one_token_lock_nobody_out(
    house: Daemon, waiting: Client, connections: ExitStack, path: str
) -> None:
    is_crews = path.startswith("/crews/")
    request = half_sent(path, waiting.token if is_crews else await house.login())
    opened = [connections.enter_context(connect(house, request)) for _ in range(BODIES)]
    await check_served(house)
    refusal = await settled(house, opened, lambda seen: seen == {0: SHARE, 429: BODIES - SHARE})
    check_refusal(refusal, 429, is_crews=is_crews)
    await check_served(house)


async def test_half_sent_logins_leave_a_quarter_of_the_connections(
    house: Daemon, connections: ExitStack
) -> None:
    request = half_sent("/api/auth/login")
    opened = [connections.enter_context(connect(house, request)) for _ in range(BODIES)]
    await check_served(house)
    refusal = await settled(house, opened, lambda seen: seen[0] <= 384 and seen[503] >= 216)
    check_refusal(refusal, 503, is_crews=False)
    await check_served(house)


async def test_half_sent_logins_leave_room_for_a_follower(
    house: Daemon, waiting: Client, connections: ExitStack
) -> None:
    kickoff_id = await waiting.kick_off()
    request = half_sent("/api/auth/login")
    for _ in range(BODIES):
        connections.enter_context(connect(house, request))
    request = get(f"/crews/waiting/events/{kickoff_id}", waiting.token)
    follower = connections.enter_context(connect(house, request))
    await settled(house, [follower], lambda seen: seen == {200: 1})
    connections.close()
    await waiting.stop(kickoff_id)


async def test_followers_that_never_read_take_little_memory_and_give_it_back(
    house: Daemon, meet: Meet, connections: ExitStack
) -> None:
    telling = await meet(house, "telling")
    kickoff_id = await telling.kick_off()
    assert (await telling.ended(kickoff_id))["state"] == "SUCCESS"
    told = await telling.events(kickoff_id)  # caches are filled now
    large = [each for each in told if each["data"].get("output") == "x" * LARGE]
    assert len(large) == LARGE_EVENTS
    before = peak = own_memory(house)

    request = get(f"/crews/telling/events/{kickoff_id}", telling.token)
    opened = [connections.enter_context(connect(house, request, receives=4096)) for _ in range(500)]
    await check_served(house)
    with trio.move_on_after(LOADED):
        while True:
            peak = max(peak, own_memory(house))
            await trio.sleep(0.05)
    statuses, _ = answers(opened)
    assert statuses[200] + statuses[429] == len(opened)
    # On a loaded machine the last followers connect after the first were dropped for not reading.
    assert SHARE <= statuses[200] < 2 * SHARE
    await check_served(house)
    assert peak - before <= MEMORY

    connections.close()

    async def is_given_back() -> bool:
        return own_memory(house) - before <= MEMORY // 2

    await house.until("memory is given back", is_given_back)


def own_memory(daemon: Daemon) -> int:
    """Return the daemon's memory (PSS) in KiB."""
    rollup = Path(f"/proc/{daemon.program.process.pid}/smaps_rollup").read_text()
    found = re.search(r"^Pss:\s+(\d+) kB", rollup, re.MULTILINE)
    assert found is not None
    return int(found[1])
