"""A load generator: each of some connections sends its next request as soon as it is answered.

With several requests, each connection has its own, like clients that poll their own executions.
Plain sockets and one selector cost less than the servers that are measured; an HTTP library would
cost more. Only a status line and a `Content-Length` are understood. Any other status than the
expected one ends the measurement with an error.
"""

from __future__ import annotations

import math
import selectors
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import cycle, islice
from typing import Final
from urllib.parse import urlsplit

STALLED: Final = 20.0
"""Seconds without any answer after which the server counts as hung."""


class LoadFailed(Exception):  # noqa: N818 - it names what happened
    """The server gave a wrong answer, or none."""


@dataclass(frozen=True)
class Request:
    """A GET request, and the status that is expected."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    status: int = 200

    def raw(self) -> bytes:
        parts = urlsplit(self.url)
        path = f"{parts.path}?{parts.query}" if parts.query else parts.path
        fields = {"Host": parts.netloc, **self.headers}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        return f"GET {path} HTTP/1.1\r\n{head}\r\n".encode()


@dataclass(frozen=True)
class LoadResult:
    """The result of a load: answers a second, and the 50th and 99th percentile in seconds."""

    rate: float
    p50: float
    p99: float


class _Connection:
    def __init__(self, request: bytes, address: tuple[str, int], status: int) -> None:
        self.socket = socket.create_connection(address, timeout=STALLED)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._request = request
        self._expected = b"HTTP/1.1 %d" % status
        self._received = b""
        self._missing = -1
        self._asked = 0.0

    def ask(self) -> None:
        self._received, self._missing = b"", -1
        self._asked = time.perf_counter()
        self.socket.sendall(self._request)

    def read(self) -> float | None:
        """Return the seconds that the answer took, or None if it is not complete yet."""
        data = self.socket.recv(65536)
        if not data:
            raise LoadFailed("a connection was closed")
        if self._missing < 0:
            self._received += data
            head, end, body = self._received.partition(b"\r\n\r\n")
            if not end:
                return None
            if not head.startswith(self._expected):
                raise LoadFailed(self._received[:300].decode(errors="replace"))
            self._missing = _length(head) - len(body)
        else:
            self._missing -= len(data)
        return time.perf_counter() - self._asked if self._missing <= 0 else None


def load(requests: Sequence[Request], *, connections: int, seconds: float) -> LoadResult:
    """Send requests to one server for `seconds`.

    Raises `LoadFailed`, and `OSError` if nobody listens.
    """
    parts = urlsplit(requests[0].url)
    address = (parts.hostname or "", parts.port or 80)
    taken: list[float] = []
    with ExitStack() as opened:
        selector = opened.enter_context(selectors.DefaultSelector())
        for request in islice(cycle(requests), connections):
            connection = _Connection(request.raw(), address, request.status)
            opened.enter_context(connection.socket)
            selector.register(connection.socket, selectors.EVENT_READ, connection)
            connection.ask()
        began = time.perf_counter()
        while (passed := time.perf_counter() - began) < seconds:
            ready = selector.select(STALLED)
            if not ready:
                raise LoadFailed(f"no answer within {STALLED:g} s")
            for key, _ in ready:
                took = key.data.read()
                if took is not None:
                    taken.append(took)
                    key.data.ask()
    taken.sort()
    return LoadResult(len(taken) / passed, _percentile(taken, 0.5), _percentile(taken, 0.99))


def _percentile(ordered: list[float], share: float) -> float:
    if not ordered:
        raise LoadFailed("nothing was answered in the whole time")
    return ordered[math.ceil(share * len(ordered)) - 1]


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line[15:])
    raise LoadFailed(f"no Content-Length: {head[:300].decode(errors='replace')}")
