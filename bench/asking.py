"""A client of the daemon's and of the portal's that costs next to nothing.

What a client costs is added to whatever is measured through it. httpx takes about a millisecond of
processor time for a request, as much as the daemon takes for a small one, and the standard
library's a fifth of that, most of it to read the answer's head as if it were a letter's. This one
reads of it what it needs. One connection, kept open, and one request at a time.
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


class Asking(AbstractContextManager["Asking"]):
    """Asks one server, over HTTP/1.1. `headers` go with every request."""

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

    def leave(self) -> None:
        """End what another thread is asking: it fails there."""
        connected = self._socket
        if connected is not None:
            with suppress(OSError):  # the other side may have been quicker
                connected.shutdown(socket.SHUT_RDWR)

    def post(self, path: str, body: object) -> Any:
        """The answer's JSON. Raises `ValueError` with the answer when its status is not 200."""
        return self._ask("POST", path, json.dumps(body))

    def get(self, path: str) -> Any:
        """The same."""
        return self._ask("GET", path, "")

    def _ask(self, method: str, path: str, body: str) -> Any:
        length = f"Content-Length: {len(body)}\r\n" if body else ""
        request = f"{method} {path} HTTP/1.1\r\n{self._fields}{length}\r\n{body}"
        if self._socket is None:
            self._socket = socket.create_connection(self._address, PATIENCE)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.sendall(request.encode("ascii"))
        status, text, is_last = _answer(self._socket)
        if is_last:
            self.close()
        if status != 200:
            raise ValueError(f"{path}: {status} {text[:500]!r}")
        return json.loads(text)


def _answer(connected: socket.socket) -> tuple[int, bytes, bool]:
    """Its status and body, and whether it is the connection's last.

    Raises `ConnectionError` when there is none, or none that is whole.
    """
    said = b""
    while not (whole := said.partition(b"\r\n\r\n"))[1]:
        said += _more(connected)
    head, _, body = whole
    found = _HEAD.match(head + b"\r\n")
    if found is None:
        raise ConnectionError(f"no answer with a length: {head[:500]!r}")
    while len(body) < int(found[2]):
        body += _more(connected)
    return int(found[1]), body, b"\r\nconnection: close" in head.lower()


def _more(connected: socket.socket) -> bytes:
    if not (data := connected.recv(AT_ONCE)):
        raise ConnectionError("the connection was closed before its answer")
    return data
