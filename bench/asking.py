"""An HTTP client for the daemon and the portal that takes little processor time.

A client's cost is added to every figure that is measured through it. httpx takes about 1 ms of
processor time for a request, as much as the daemon for a small one. This client reads only what it
needs of an answer. It keeps one connection open and sends one request at a time.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from types import TracebackType
from typing import Any, Final
from urllib.parse import urlsplit

PATIENCE: Final = 90.0
AT_ONCE: Final = 64 * 1024

_HEAD: Final = re.compile(
    rb"HTTP/1\.1 (\d{3}) .*?\r\ncontent-length: (\d+)\r\n", re.DOTALL | re.IGNORECASE
)


class JsonClient(AbstractContextManager["JsonClient"]):
    """An HTTP/1.1 client of one server. `headers` are sent with every request."""

    def __init__(self, origin: str, headers: Mapping[str, str]) -> None:
        place = urlsplit(origin)
        self._address = (place.hostname, place.port)
        fields = {"Host": place.netloc, "Content-Type": "application/json", **headers}
        self._fields = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        self._socket: socket.socket | None = None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def abort(self) -> None:
        """Shut the connection down. A request that runs in another thread fails there."""
        connected = self._socket
        if connected is not None:
            with suppress(OSError):  # the server may have closed it already
                connected.shutdown(socket.SHUT_RDWR)

    def post(self, path: str, body: object) -> Any:
        """Return the JSON of the answer.

        Raises `ValueError` with it if the status is not 200, and `OSError` if the connection fails.
        """
        return self._request("POST", path, json.dumps(body))

    def get(self, path: str) -> Any:
        """Like `post`, with GET."""
        return self._request("GET", path, "")

    def _request(self, method: str, path: str, body: str) -> Any:
        length = f"Content-Length: {len(body)}\r\n" if body else ""
        request = f"{method} {path} HTTP/1.1\r\n{self._fields}{length}\r\n{body}"
        if self._socket is None:
            self._socket = socket.create_connection(self._address, PATIENCE)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.sendall(request.encode("ascii"))
        status, text, is_last = _read_answer(self._socket)
        if is_last:
            self.close()
        if status != 200:
            raise ValueError(f"{path}: {status} {text[:500]!r}")
        return json.loads(text)


def _read_answer(connected: socket.socket) -> tuple[int, bytes, bool]:
    """Return the status, the body, and True if the server closes the connection after this answer.

    Raises `ConnectionError` if the answer is missing or incomplete.
    """
    said = b""
    while not (whole := said.partition(b"\r\n\r\n"))[1]:
        said += _receive(connected)
    head, _, body = whole
    found = _HEAD.match(head + b"\r\n")
    if found is None:
        raise ConnectionError(f"no answer with a length: {head[:500]!r}")
    while len(body) < int(found[2]):
        body += _receive(connected)
    return int(found[1]), body, b"\r\nconnection: close" in head.lower()


def _receive(connected: socket.socket) -> bytes:
    if not (data := connected.recv(AT_ONCE)):
        raise ConnectionError("the connection was closed before its answer")
    return data
