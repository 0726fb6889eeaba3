"""Wrong requests to the whole daemon: others are served, and its memory does not grow.

`Daemon.stop` checks the log for errors. `tests/http_server/` tests each guard of the server.
"""

from __future__ import annotations

import logging
import random
import re
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
import trio

if TYPE_CHECKING:
    from tests.security.conftest import Daemon, Start

logger = logging.getLogger(__name__)

REQUESTS = 20_000
SEED = 20261120
CLIENTS = 8  # concurrent, so that faults meet requests in progress
WARM_UP_REQUESTS = 2_000  # requests after which caches are filled; later growth is a leak
MAY_GROW = 8 * 1024 * 1024
"""Bytes by which the memory may grow. A leak of 1 KB for each request would be 18 MB."""
ANSWERED_WITHIN = 3.0
"""Seconds within which other clients must be served on a busy machine."""
ASKED = 50  # the fewest requests of other clients
PATIENCE = 30.0


@pytest.fixture(scope="module")
def daemon(start: Start) -> Iterator[Daemon]:
    with start() as daemon:
        yield daemon


def statuses(raw: bytes) -> list[int]:
    """Return the statuses of all the answers in `raw`."""
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", raw)]


# Requests that two servers in a row may read differently

HEALTH = b"GET /api/health HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST /api/auth/login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
LENGTH = b"Content-Length: 2"
CHUNKED = b"Transfer-Encoding: chunked"
CHUNKS = b"2\r\n{}\r\n0\r\n\r\n"


def post(fields: bytes, body: bytes = b"{}") -> bytes:
    """Return a login with these header fields and this body."""
    return POST + fields + b"\r\n\r\n" + body


AMBIGUOUS = {
    "two lengths": post(LENGTH + b"\r\nContent-Length: 44"),
    "two lengths in one line": post(b"Content-Length: 2, 44"),
    "a length with a sign": post(b"Content-Length: +2"),
    "a length below zero": post(b"Content-Length: -2"),
    "a length in hexadecimal": post(b"Content-Length: 0x2"),
    "a length with an underscore": post(b"Content-Length: 0_2"),
    "a length of other digits": post("Content-Length: ٢".encode()),
    "an empty length": post(b"Content-Length: "),
    "an unknown coding": post(b"Transfer-Encoding: xchunked", CHUNKS),
    "chunked and then another": post(CHUNKED + b", identity", CHUNKS),
    "chunked twice": post(CHUNKED + b", chunked", CHUNKS),
    "two codings": post(CHUNKED + b"\r\nTransfer-Encoding: identity", CHUNKS),
    "a coding with a vertical tab": post(b"Transfer-Encoding: \x0bchunked", CHUNKS),
    "a blank before the colon": post(b"Transfer-Encoding : chunked", CHUNKS),
    "a blank before a length's colon": post(b"Content-Length : 2"),
    "a first field that begins with a blank": post(LENGTH).replace(b"\r\nHost", b"\r\n Host", 1),
    "a NUL in a field": post(LENGTH + b"\r\nX: a\0b"),
    "a CR in a field": post(LENGTH + b"\r\nX: a\rContent-Length: 44"),
    "a field without a colon": post(LENGTH + b"\r\nX"),
    "a field without a name": post(LENGTH + b"\r\n: x"),
    "a chunk's size with a sign": post(CHUNKED, b"+2\r\n{}\r\n0\r\n\r\n"),
    "a chunk's size in hexadecimal": post(CHUNKED, b"0x2\r\n{}\r\n0\r\n\r\n"),
    "a chunk's size that is none": post(CHUNKED, b";\r\n{}\r\n0\r\n\r\n"),
    "a chunk's size without end": post(CHUNKED, b"0" * 40 + CHUNKS),
    "a chunk that is longer than it says": post(CHUNKED, b"2\r\n{}xx\r\n0\r\n\r\n"),
    "a length and chunks": post(b"Content-Length: 12\r\n" + CHUNKED, CHUNKS),
    "chunks and a length": post(CHUNKED + b"\r\nContent-Length: 12", CHUNKS),
    "a GET with a length and chunks": HEALTH[:-2]
    + b"Content-Length: 12\r\nTransfer-Encoding: chunked\r\n\r\n"
    + CHUNKS,
    "chunks in HTTP/1.0": post(b"Connection: keep-alive\r\n" + CHUNKED, CHUNKS).replace(
        b"HTTP/1.1", b"HTTP/1.0"
    ),
    "two hosts": HEALTH.replace(b"\r\n\r\n", b"\r\nHost: localhost\r\n\r\n"),
    "no host": HEALTH.replace(b"Host: localhost\r\n", b""),
    "a version of its own": HEALTH.replace(b"HTTP/1.1", b"HTTP/1.1.1"),
    "a request line of four words": HEALTH.replace(b" HTTP", b" x HTTP"),
}
SECOND = b"GET /api/sync-cookie HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize("name", AMBIGUOUS)
async def test_ambiguous_request_is_refused_with_all_behind_it(daemon: Daemon, name: str) -> None:
    assert statuses(await daemon.send(AMBIGUOUS[name] + SECOND)) in ([400], [501])


CLEAR = {
    "the same length twice": (post(LENGTH + b"\r\n" + LENGTH), 400),
    "a chunk's extension": (post(CHUNKED, b"2;x=y\r\n{}\r\n0\r\n\r\n"), 400),
    "chunks with a trailer": (post(CHUNKED, CHUNKS[:-2] + b"Content-Length: 44\r\n\r\n"), 400),
    "a body with a GET": (HEALTH[:-2] + b"Content-Length: 5\r\n\r\nhello", 200),
    "a body that looks like a request": (post(b"Content-Length: %d" % len(SECOND), SECOND), 400),
}


@pytest.mark.parametrize("name", CLEAR)
async def test_unambiguous_request_is_followed_by_the_next(daemon: Daemon, name: str) -> None:
    request, status = CLEAR[name]
    assert statuses(await daemon.send(request + SECOND)) == [status, 200]


# Mutated requests

TOKENS = [
    b"\r\n", b"\n", b"\r", b"\0", b" ", b"\t", b":", b",", b";", b"\xff", b"%", b"-1", b"0x10",
    b"99999999999999999999", b"Host: b\r\n", b"Content-Length: 3\r\n", b"Content-Length: -3\r\n",
    b"Transfer-Encoding: chunked\r\n", b"Connection: close\r\n", b"Expect: 100-continue\r\n",
    b"Connection: Upgrade\r\nUpgrade: websocket\r\n", b"Authorization: Bearer x\r\n",
    b"X-Forwarded-For: ::1\r\n", b"HTTP/9.9", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"0\r\n\r\n",
    b'{"', b"[" * 500, b"\xed\xa0\x80", b"x" * 20_000,
]  # fmt: skip


def mutate(requests: Sequence[bytes], chance: random.Random) -> bytes:
    """Return one to three of the requests in a row with one to four faults."""
    data = b"".join(chance.choices(requests, k=chance.choice([1, 1, 1, 2, 3])))
    for _ in range(chance.randint(1, 4)):
        at = chance.randint(0, len(data))
        match chance.randrange(5):
            case 0:
                data = data[:at] + chance.choice(TOKENS) + data[at:]
            case 1:
                data = data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]
            case 2:
                data = data[:at] + data[at + chance.randint(1, 20) :]
            case 3:
                data = data[:at]
            case 4:
                line = data.find(b"\r\n", at)
                data = data[:at] + data[line + 2 :] + data[at:line]
    return data


async def test_pipelined_requests_are_answered_in_their_order(daemon: Daemon) -> None:
    wrong = HEALTH.replace(b"/api/health", b"/nowhere")
    raw = await daemon.send((HEALTH + wrong) * 100 + SECOND)
    assert statuses(raw) == [200, 404] * 100 + [200]


async def test_thousand_idle_connections_shut_nobody_out(daemon: Daemon) -> None:
    async with AsyncExitStack() as opened:
        for n in range(1000):
            stream = await trio.open_tcp_stream("127.0.0.1", daemon.port)
            await opened.enter_async_context(stream)
            if n % 3 == 1:
                await stream.send_all(b"GET /api/health HT")
        with trio.fail_after(ANSWERED_WITHIN):
            assert (await daemon.ask("GET", "/api/health")).status_code == 200


@dataclass
class OtherClient:
    """An ordinary client that keeps sending requests."""

    daemon: Daemon
    took: list[float] = field(default_factory=list)

    async def run(self) -> None:
        while True:
            began = time.perf_counter()
            answer = await self.daemon.ask("GET", "/api/health")
            assert answer.status_code == 200
            self.took.append(time.perf_counter() - began)
            await trio.sleep(0.02)


async def run_a_crew(daemon: Daemon) -> None:
    token = await daemon.crew_token("alpha")
    inputs = {"inputs": {"topic": 1}}
    answer = await daemon.ask("POST", "/crews/alpha/kickoff", inputs, token=token)
    kickoff_id = answer.json()["kickoff_id"]
    end = await daemon.ask("GET", f"/crews/alpha/status/{kickoff_id}?wait=60", token=token)
    assert end.json()["state"] == "SUCCESS"


async def valid_requests(daemon: Daemon) -> list[bytes]:
    """Return a request for each operation, with a valid token."""
    crew = await daemon.crew_token("alpha")
    session = await daemon.login()
    made = []
    for path, methods in (await daemon.document())["paths"].items():
        token = crew if "{crew}" in path else session
        for method, operation in methods.items():
            place = path.replace("{crew}", "alpha").replace(
                "{kickoff_id}", "3f1e2d0c-6a5b-4c8d-9e7f-0a1b2c3d4e5f"
            )
            body = b""
            head = f"{method.upper()} {place} HTTP/1.1\r\nHost: localhost\r\n"
            head += f"Authorization: Bearer {token}\r\n"
            if "requestBody" in operation:
                body = BODIES.get(path, b'{"cookie": "SPC_EC=1", "links": ["x"], "inputs": {}}')
                head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            made.append(head.encode() + b"\r\n" + body)
    return [*made, post(CHUNKED, CHUNKS), HEALTH]


BODIES = {
    "/api/auth/login": b'{"password": "wrong"}',
    "/crews/{crew}/kickoff": b'{"inputs": {"topic": 1}, "taskWebhookUrl": "http://127.0.0.1/"}',
}


def send(port: int, requests: Sequence[tuple[bytes, bool]]) -> None:
    """Send requests, each on a new connection; some clients do not wait for the answer.

    In a thread: on trio the clients would use more of the machine than the daemon.
    """
    for data, waits in requests:
        with (
            socket.create_connection(("127.0.0.1", port), PATIENCE) as stream,
            suppress(ConnectionError),
        ):
            stream.sendall(data)
            if waits:
                stream.shutdown(socket.SHUT_WR)
                while stream.recv(65536):
                    pass


@pytest.mark.deadline(300, reason="the number says it")
async def test_mutated_requests_leave_no_memory_no_descriptor_and_no_error(daemon: Daemon) -> None:
    chance = random.Random(SEED)
    whole = await valid_requests(daemon)
    answer = await daemon.ask("POST", "/api/sync-cookie", {"cookie": "SPC_EC=1"})
    assert answer.status_code == 200  # the store of the cookie is open now
    await run_a_crew(daemon)  # and so is a worker, which a mutated kickoff may start
    before = daemon.descriptors()
    others = OtherClient(daemon)

    async def attack(times: int) -> None:
        requests = [(mutate(whole, chance), chance.random() < 0.7) for _ in range(times)]
        async with trio.open_nursery() as clients:
            for n in range(CLIENTS):
                clients.start_soon(trio.to_thread.run_sync, send, daemon.port, requests[n::CLIENTS])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(others.run)
        await attack(WARM_UP_REQUESTS)
        size = daemon.memory()
        for _ in range(REQUESTS // WARM_UP_REQUESTS - 1):
            await attack(WARM_UP_REQUESTS)
        nursery.cancel_scope.cancel()
    assert daemon.program.process.poll() is None
    grown = daemon.memory() - size
    logger.info(
        "%d mutated requests, %d of others meanwhile, the slowest in %.3f s; grown by %d kB",
        REQUESTS,
        len(others.took),
        max(others.took),
        grown / 1024,
    )
    assert grown < MAY_GROW
    assert len(others.took) > ASKED
    assert max(others.took) < ANSWERED_WITHIN
    with trio.fail_after(PATIENCE):
        while len(daemon.descriptors()) > len(before):  # noqa: ASYNC110 - another process
            await trio.sleep(0.05)
    assert "was ended by" not in daemon.log
